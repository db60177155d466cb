// SPDX-License-Identifier: Apache-2.0
// Every method's loss against golden vectors, and its gradient against finite differences of the
// printed formula, stopped weights held still.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/rl/awm.h"
#include "core/rl/guard.h"
#include "core/rl/loss_weight.h"
#include "core/rl/method.h"
#include "core/rl/nft.h"
#include "core/rl/v_grpo.h"
#include "tests/golden/golden.h"

namespace oxbow::rl {
namespace {

using ::oxbow::testing::Golden;
using ::oxbow::testing::kGoldenTolerance;
using Vector = std::vector<double>;

at::Tensor Row(const nlohmann::json& values) {
  return at::tensor(values.get<Vector>(), at::kDouble).unsqueeze(0);
}
at::Tensor One(double value) { return at::full({1}, value, at::kDouble); }

// Inputs of a forward-process record.
struct Noised {
  explicit Noised(const nlohmann::json& r)
      : x0(Row(r["x0"])),
        noise(Row(r["eps"])),
        v(Row(r["v"])),
        t(One(r["t"])),
        x_t(x0 * (1 - r["t"].get<double>()) + noise * r["t"].get<double>()) {}
  at::Tensor x0, noise, v, t, x_t;
};

RowBatch BatchOf(const Noised& in) {
  return {.x = in.x_t, .sigma = in.t, .clean = in.x0, .noise = in.noise};
}

// Largest difference of d loss / d v and central differences of `plain`.
double GradientError(const std::function<at::Tensor(const at::Tensor&)>& loss,
                     const std::function<double(const at::Tensor&)>& plain, const at::Tensor& v) {
  constexpr double kNudge = 1e-6;
  at::Tensor leaf = v.clone().requires_grad_(true);
  loss(leaf).sum().backward();
  double worst = 0;
  for (int64_t d = 0; d < v.size(1); ++d) {
    at::Tensor up = v.clone(), down = v.clone();
    up[0][d] += kNudge;
    down[0][d] -= kNudge;
    const double slope = (plain(up) - plain(down)) / (2 * kNudge);
    worst = std::max(worst, std::abs(leaf.grad()[0][d].item<double>() - slope));
  }
  return worst;
}

double MeanSquare(const at::Tensor& x) { return x.square().mean().item<double>(); }
double MeanSize(const at::Tensor& x) { return x.abs().mean().item<double>(); }

TEST(NftTest, Golden) {
  for (const auto& r : Golden()["nft"]) {
    const Noised in(r);
    const at::Tensor v_old = Row(r["v_old"]);
    const double beta = r["beta"], p = NftOptimality(r["adv"], 5);
    EXPECT_NEAR(p, r["rho"], kGoldenTolerance);
    const auto side = [&](const at::Tensor& velocity) {
      return NftSide(in.x_t, in.x0, in.t, velocity).item<double>();
    };
    EXPECT_NEAR(side(in.v * beta + v_old * (1 - beta)), r["plus"], kGoldenTolerance);
    EXPECT_NEAR(side(v_old * (1 + beta) - in.v * beta), r["minus"], kGoldenTolerance);
    const at::Tensor loss = NftLoss(in.x_t, in.x0, in.t, in.v, v_old, One(p), beta, 5);
    EXPECT_NEAR(loss.item<double>(), r["loss"],
                kGoldenTolerance * std::max(1., r["loss"].get<double>()));
  }
}

TEST(NftTest, GradientHoldsTheWeightsStill) {
  for (const auto& r : Golden()["nft"]) {
    const Noised in(r);
    const at::Tensor v_old = Row(r["v_old"]);
    const double beta = r["beta"], p = r["rho"], t = r["t"];
    const auto error = [&](const at::Tensor& v, double sign) {
      return in.x_t - ((1 - sign * beta) * v_old + sign * beta * v) * t - in.x0;
    };
    const double weight_plus = MeanSize(error(in.v, 1)), weight_minus = MeanSize(error(in.v, -1));
    const auto plain = [&](const at::Tensor& v) {
      return 5 / beta *
             (p * MeanSquare(error(v, 1)) / weight_plus +
              (1 - p) * MeanSquare(error(v, -1)) / weight_minus);
    };
    const auto loss = [&](const at::Tensor& v) {
      return NftLoss(in.x_t, in.x0, in.t, v, v_old, One(p), beta, 5);
    };
    EXPECT_NEAR(loss(in.v).item<double>(), plain(in.v), 1e-11);
    EXPECT_LT(GradientError(loss, plain, in.v), 1e-7);
  }
}

TEST(NftTest, OptimalityIsTheAdvantagesPlaceInItsLimits) {
  EXPECT_EQ(NftOptimality(0, 5), .5);
  EXPECT_EQ(NftOptimality(9, 5), 1);
  EXPECT_EQ(NftOptimality(-9, 5), 0);
}

const std::pair<const char*, AwmWeighting> kWeightings[] = {
    {"uniform", AwmWeighting::kUniform},
    {"linear_t", AwmWeighting::kLinear},
    {"t2", AwmWeighting::kSquare},
    {"huber", AwmWeighting::kHuber},
    {"ghuber", AwmWeighting::kGeneralHuber}};

TEST(AwmTest, GoldenAndGradientOfEveryWeighting) {
  for (const auto& r : Golden()["awm"]) {
    const Noised in(r);
    for (const auto& [name, weighting] : kWeightings) {
      const AwmOptions options{.weighting = weighting};
      const auto lp = [&](const at::Tensor& v) {
        return AwmLogProb(options, in.x0, in.noise, in.t, v);
      };
      EXPECT_NEAR(lp(in.v).item<double>(), r[name], kGoldenTolerance) << name;
      const auto plain = [&](const at::Tensor& v) { return lp(v).item<double>(); };
      EXPECT_LT(GradientError(lp, plain, in.v), 1e-7) << name;
    }
  }
}

TEST(VGrpoTest, GoldenSurrogateAndRatio) {
  for (const auto& r : Golden()["v_grpo"]) {
    const Noised in(r);
    const auto l = [&](const at::Tensor& v) { return VGrpoSurrogate({}, BatchOf(in), v); };
    const at::Tensor now = l(in.v), old = l(Row(r["v_old"]));
    EXPECT_NEAR(now.item<double>(), r["surrogate"], kGoldenTolerance);
    EXPECT_NEAR(old.item<double>(), r["surrogate_old"], kGoldenTolerance);
    EXPECT_NEAR((old - now).exp().item<double>(), r["ratio"], kGoldenTolerance);
    const double frozen = MeanSize(in.x_t - in.v * r["t"].get<double>() - in.x0);
    const auto plain = [&](const at::Tensor& v) {
      return MeanSquare(in.x_t - v * r["t"].get<double>() - in.x0) / frozen;
    };
    EXPECT_LT(GradientError(l, plain, in.v), 1e-7);
  }
}

// The ablations, from the error of the velocity: e, of which each prediction's error is a multiple.
TEST(VGrpoTest, EveryPredictionAndWeightFollowsFromTheVelocitysError) {
  for (const auto& r : Golden()["v_grpo"]) {
    const Noised in(r);
    const double t = r["t"];
    const auto error = [&](const at::Tensor& v) { return v - (in.noise - in.x0); };
    for (const auto& [prediction, factor] : {std::pair{VGrpoPrediction::kClean, -t},
                                             {VGrpoPrediction::kNoise, 1 - t},
                                             {VGrpoPrediction::kVelocity, 1.}}) {
      const double frozen = MeanSize(error(in.v) * factor);
      const double bound = (1 - t) / t / (factor * factor);
      for (const auto& [weight, number] : {std::pair{VGrpoWeight::kAdaptive, 1 / frozen},
                                           {VGrpoWeight::kUniform, 1.},
                                           {VGrpoWeight::kBound, bound}}) {
        const VGrpoLoss loss{.prediction = prediction, .weight = weight};
        const auto l = [&](const at::Tensor& v) { return VGrpoSurrogate(loss, BatchOf(in), v); };
        const auto plain = [&](const at::Tensor& v) {
          return number * MeanSquare(error(v) * factor);
        };
        EXPECT_NEAR(l(in.v).item<double>(), plain(in.v), 1e-12 * std::max(1., plain(in.v)));
        EXPECT_LT(GradientError(l, plain, in.v), 1e-7 * std::max(1., number));
      }
    }
  }
}

TEST(VGrpoTest, TheBoundsWeightIsHeldWhereAnImageIsHardlyNoised) {
  Noised in(Golden()["v_grpo"][0]);
  in.t = One(1e-6);
  const VGrpoLoss loss{.weight = VGrpoWeight::kBound};
  const double at_zero = VGrpoSurrogate(loss, BatchOf(in), in.v).item<double>();
  const double velocity = MeanSquare(in.v - (in.noise - in.x0));
  EXPECT_NEAR(at_zero, 99 * velocity, 1e-9 * velocity);
}

// A recorded step of Flow-SDE with a second velocity.
struct Moved {
  explicit Moved(const nlohmann::json& r)
      : x_next(Row(r["flow_sde"]["x_next"])),
        mean_old(Row(r["flow_sde"]["mean"])),
        scale(r["flow_sde"]["scale"]),
        lp_old(r["flow_sde"]["logp"]),
        lp_new(r["flow_sde_logp_new"]) {
    const double s = r["s"], dt = r["s_next"].get<double>() - s, std = r["flow_sde"]["std"];
    const at::Tensor x = Row(r["x"]), v = Row(r["v_new"]);
    mean_new = x * (1 + std * std / (2 * s) * dt) + v * ((1 + std * std * (1 - s) / (2 * s)) * dt);
  }
  at::Tensor LogProb(const at::Tensor& mean) const {
    return -(x_next - mean).square().mean(1) / (2 * scale * scale) - std::log(scale) -
           0.5 * std::log(2 * M_PI);
  }
  at::Tensor x_next, mean_old, mean_new;
  double scale, lp_old, lp_new;
};

TEST(GuardTest, Golden) {
  for (const auto& r : Golden()["steps"]) {
    const Moved m(r);
    const at::Tensor bias = MeanShift(m.mean_new, m.mean_old, One(m.scale));
    EXPECT_NEAR(bias.item<double>(), r["flow_sde_kl_per_dim"], kGoldenTolerance);
    const at::Tensor log_ratio = GuardLogRatio(One(m.lp_new), One(m.lp_old), bias, One(m.scale));
    EXPECT_NEAR(log_ratio.exp().item<double>(), r["guard_ratio"], kGoldenTolerance);
  }
}

// ALGORITHMS 2.8's step: the printed ratio, and the clipped losses for both signs.
TEST(GuardTest, ThePublishedExample) {
  const at::Tensor bias = One(2.27363360969e-5);
  const at::Tensor log_ratio =
      GuardLogRatio(One(-.430617348048), One(-.429118223329), bias, One(.442718872424));
  EXPECT_NEAR(log_ratio.exp().item<double>(), .999346588566, 1e-11);
}

TEST(GuardTest, LossGradientOnBothSidesOfTheClip) {
  for (const auto& r : Golden()["steps"]) {
    const Moved m(r);
    for (const double advantage : {1.5, -1.5}) {
      const auto loss = [&](const at::Tensor& mean) {
        const at::Tensor bias = MeanShift(mean, m.mean_old, One(m.scale));
        const at::Tensor log_ratio =
            GuardLogRatio(m.LogProb(mean), One(m.lp_old), bias, One(m.scale));
        return ClippedLoss(log_ratio, One(0), One(advantage), One(1), {.05, .05});
      };
      const auto plain = [&](const at::Tensor& mean) { return loss(mean).item<double>(); };
      EXPECT_LT(GradientError(loss, plain, m.mean_new), 1e-7) << advantage;
    }
  }
}

TEST(DppoTest, DropsARowThatMovedFarAndOutwardAlone) {
  const auto loss = [](const at::Tensor& lp, double advantage, double divergence) {
    return DivergenceMaskedLoss(lp, One(-1), One(divergence), One(advantage), One(2), 1e-5);
  };
  for (const double advantage : {1.5, -1.5}) {
    for (const double moved : {-.1, .1}) {
      for (const double divergence : {.9e-5, 1e-5}) {
        const bool dropped = divergence >= 1e-5 && advantage * moved > 0;
        at::Tensor lp = One(-1 + moved).requires_grad_(true);
        const at::Tensor value = loss(lp, advantage, divergence);
        value.sum().backward();
        const double want = dropped ? 0 : -2 * advantage * std::exp(moved);
        EXPECT_NEAR(value.item<double>(), want, kGoldenTolerance);
        EXPECT_NEAR(lp.grad().item<double>(), want, kGoldenTolerance) << "its own derivative";
      }
    }
  }
}

// Flow-GRPO's grid of ten at eta .7: S as printed, and the published factor 2.25.
TEST(StepWeightTest, TempFlowsFactorAndEqualMoves) {
  flow::SamplingSpec spec{.sigmas = flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, 10, 3),
                          .sde = std::vector<bool>(10, true)};
  spec.sde[9] = false;
  const std::vector<double> weights = StepWeights(StepWeight::kNoise, spec);
  EXPECT_NEAR(weights[0] / .7, 2.25, .005);
  EXPECT_NEAR(weights[8] / .225360, 2.25, .005);
  EXPECT_EQ(weights[9], 0);
  double sum = 0;
  for (const double weight : weights) sum += weight;
  EXPECT_NEAR(sum, 9, 1e-12);
  const std::vector<double> equal = StepWeights(StepWeight::kSensitivity, spec);
  const auto move = [&](int i) {
    return equal[static_cast<size_t>(i)] *
           std::sqrt(flow::KernelSensitivity(flow::KernelAt(spec, i)));
  };
  for (int i = 1; i < 9; ++i) EXPECT_NEAR(move(i), move(0), 1e-12);
  const std::vector<double> none = StepWeights(StepWeight::kNone, spec);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(none[static_cast<size_t>(i)], i < 9 ? 1 : 0);
}

// The off-policy loss where nothing is off-policy is the clipped loss, to the bit.
TEST(OffPolicyLossTest, OnPolicyItIsTheClippedLossBitForBit) {
  const at::Tensor lp = at::linspace(-1.4, -1.3, 2001, at::kFloat);
  const at::Tensor old = at::full_like(lp, -1.35);
  for (const float advantage : {1.7F, -0.3F}) {
    for (const double clip : {1e-4, 1e-3, 3e-2}) {
      const at::Tensor a = at::full_like(lp, advantage);
      const at::Tensor clipped = ClippedLoss(lp, old, a, at::ones_like(lp), {clip, 2 * clip});
      EXPECT_TRUE(at::equal(OffPolicyLoss(lp, old, old, a, {clip, 2 * clip}), clipped)) << clip;
    }
  }
}

}  // namespace
}  // namespace oxbow::rl
