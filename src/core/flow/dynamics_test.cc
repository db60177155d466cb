// SPDX-License-Identifier: Apache-2.0
#include "core/flow/dynamics.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <tuple>

#include "base/philox.h"
#include "tests/golden/golden.h"

namespace oxbow::flow {
namespace {

using ::oxbow::testing::FlowGolden;
using ::oxbow::testing::Golden;
using ::oxbow::testing::kGoldenTolerance;

at::Tensor Row(const nlohmann::json& values) {
  return at::tensor(values.get<std::vector<double>>(), at::kDouble).unsqueeze(0);
}

double Worst(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

at::Tensor Normal(uint64_t seed, at::IntArrayRef shape) {
  at::Tensor out = at::empty(shape, at::kDouble);
  RandomStream({.seed = seed})
      .FillNormal(std::span<double>(out.data_ptr<double>(), static_cast<size_t>(out.numel())));
  return out;
}

StepKernel KernelOf(const nlohmann::json& r, DynamicsKind kind) {
  return MakeKernel(kind, r["eta"], r["s"], r["s_next"], r["sigma_1"]);
}

TEST(DynamicsTest, GoldenSteps) {
  for (const auto& r : Golden()["steps"]) {
    const at::Tensor x = Row(r["x"]);
    const at::Tensor v = Row(r["v"]);
    EXPECT_LT(Worst(KernelMean(KernelOf(r, DynamicsKind::kOde), x, v), Row(r["ode"])),
              kGoldenTolerance);
    for (const auto& [name, kind] :
         {std::pair{"flow_sde", DynamicsKind::kFlowSde},
          std::pair{"dance_sde", DynamicsKind::kDanceSde}, std::pair{"cps", DynamicsKind::kCps}}) {
      const auto& want = r[name];
      const StepKernel kernel = KernelOf(r, kind);
      const at::Tensor mean = KernelMean(kernel, x, v);
      const at::Tensor next = KernelStep(kernel, mean, Row(r["z"]));
      EXPECT_NEAR(kernel.std, want["std"], kGoldenTolerance) << name;
      EXPECT_LT(Worst(mean, Row(want["mean"])), kGoldenTolerance) << name;
      EXPECT_LT(Worst(next, Row(want["x_next"])), kGoldenTolerance) << name;
      const double want_lp = want[kind == DynamicsKind::kCps ? "logp_gaussian" : "logp"];
      EXPECT_NEAR(LogProb(kernel, mean, next).item<double>(), want_lp,
                  kGoldenTolerance * std::max(1., std::abs(want_lp)))
          << name;
    }
  }
}

TEST(DynamicsTest, GoldenOffPolicyLogProbAndDivergence) {
  for (const auto& r : Golden()["steps"]) {
    const StepKernel kernel = KernelOf(r, DynamicsKind::kFlowSde);
    const at::Tensor moved = KernelMean(kernel, Row(r["x"]), Row(r["v_new"]));
    EXPECT_NEAR(LogProb(kernel, moved, Row(r["flow_sde"]["x_next"])).item<double>(),
                r["flow_sde_logp_new"], kGoldenTolerance);
    const double dv2 = (Row(r["v_new"]) - Row(r["v"])).square().mean().item<double>();
    EXPECT_NEAR(KernelSensitivity(kernel) * dv2, r["flow_sde_kl_per_dim"], kGoldenTolerance);
  }
}

TEST(DynamicsTest, GoldenWanSteps) {
  for (const auto& r : FlowGolden()["wan_steps"]) {
    const StepKernel kernel =
        MakeKernel(DynamicsKind::kWanSde, 0, r["s"], r["s_next"], r["sigma_1"]);
    const at::Tensor mean = KernelMean(kernel, Row(r["x"]), Row(r["v"]));
    const at::Tensor next = KernelStep(kernel, mean, Row(r["z"]));
    EXPECT_NEAR(kernel.std, r["std"], kGoldenTolerance);
    EXPECT_LT(Worst(mean, Row(r["mean"])), kGoldenTolerance);
    EXPECT_LT(Worst(next, Row(r["x_next"])), kGoldenTolerance);
    EXPECT_NEAR(LogProb(kernel, mean, next).item<double>(), r["logp"], kGoldenTolerance);
  }
}

// The published CPS log-prob is not a density; differences of the two differ by a factor 2 S^2.
TEST(DynamicsTest, CpsSurrogateIsADensityOnAnotherScale) {
  for (const auto& r : Golden()["steps"]) {
    const StepKernel kernel = KernelOf(r, DynamicsKind::kCps);
    const at::Tensor next = Row(r["cps"]["x_next"]);
    const at::Tensor mean = KernelMean(kernel, Row(r["x"]), Row(r["v"]));
    const at::Tensor moved = KernelMean(kernel, Row(r["x"]), Row(r["v_new"]));
    EXPECT_NEAR(-(next - mean).square().mean().item<double>(), r["cps"]["logp_surrogate"],
                kGoldenTolerance);
    const double surrogate =
        ((next - mean).square() - (next - moved).square()).mean().item<double>();
    const double density =
        (LogProb(kernel, moved, next) - LogProb(kernel, mean, next)).item<double>();
    EXPECT_NEAR(density * CpsSurrogateScale(kernel), surrogate, kGoldenTolerance);
  }
}

// flow_grpo's own noise schedule for Wan: std = sigma_1 sigma.
TEST(DynamicsTest, WanIsTheSdeFormWithLinearStd) {
  const StepKernel wan = MakeKernel(DynamicsKind::kWanSde, 0, .8, .7, .98);
  const StepKernel dance = MakeKernel(DynamicsKind::kDanceSde, .98 * .8, .8, .7, .98);
  EXPECT_EQ(wan.cx, dance.cx);
  EXPECT_EQ(wan.cv, dance.cv);
  EXPECT_EQ(wan.scale, dance.scale);
}

TEST(DynamicsTest, ZeroNoiseIsTheEulerStep) {
  for (const auto kind : {DynamicsKind::kFlowSde, DynamicsKind::kDanceSde, DynamicsKind::kCps}) {
    for (const auto& [sigma, next] : {std::pair{1., .96}, std::pair{.6, .5}, std::pair{.3, .01}}) {
      const StepKernel kernel = MakeKernel(kind, 0, sigma, next, .96);
      EXPECT_DOUBLE_EQ(kernel.cx, 1);
      EXPECT_NEAR(kernel.cv, next - sigma, 1e-15);
      EXPECT_EQ(kernel.scale, 0);
    }
  }
}

TEST(DynamicsTest, TheGuardIsFiniteAtPureNoiseAndOnWansGrid) {
  const StepKernel at_one = MakeKernel(DynamicsKind::kFlowSde, .7, 1, .96, .96);
  EXPECT_NEAR(at_one.std, 3.5, 1e-12);
  EXPECT_NEAR(at_one.scale, .7, 1e-12);
  const auto wan = SigmaGrid(ScheduleKind::kUnipcFlow, 20, 3);
  EXPECT_LT(MakeKernel(DynamicsKind::kFlowSde, .9, wan[0], wan[1], wan[1]).std, 7);
}

// For x_0 ~ N(0, 1): x_t ~ N(0, Variance(t)) and v(x, t) = Slope(t) x. The SDE must keep these
// marginals; the variance obeys a scalar recursion, so the law is checked without sampling.
double Variance(double t) { return (1 - t) * (1 - t) + t * t; }
double Slope(double t) { return (2 * t - 1) / Variance(t); }

// Largest relative error of the variance over `steps` steps, starting at .9. (A start at 1 does not
// keep the marginal for any number of steps: there std^2 h does not shrink with h.)
double MarginalError(DynamicsKind kind, double eta, int steps, double noisy_share = 1) {
  const double h = 0.9 / steps;
  double variance = Variance(0.9);
  double worst = 0;
  for (int i = 0; i < steps; ++i) {
    const double t = 0.9 - i * h;
    const double next = i + 1 == steps ? 0 : t - h;
    const bool noisy = i < noisy_share * steps;
    const StepKernel kernel =
        MakeKernel(noisy ? kind : DynamicsKind::kOde, eta, t, next, /*sigma_1=*/0.99);
    const double gain = kernel.cx + kernel.cv * Slope(t);
    variance = gain * gain * variance + kernel.scale * kernel.scale;
    worst = std::max(worst, std::abs(variance / Variance(next) - 1));
  }
  return worst;
}

// Every sampler draws from the ODE's marginals, in the limit of many steps: SDEs over all steps,
// and SDEs that are stochastic only in a window.
class MarginalTest
    : public ::testing::TestWithParam<std::tuple<DynamicsKind, double /*eta*/, double /*share*/>> {
};

TEST_P(MarginalTest, ErrorHalvesWhenStepsDouble) {
  const auto [kind, eta, share] = GetParam();
  const double coarse = MarginalError(kind, eta, 200, share);
  const double fine = MarginalError(kind, eta, 400, share);
  EXPECT_LT(fine, 0.011);
  EXPECT_NEAR(fine / coarse, 0.5, 0.03);
}

INSTANTIATE_TEST_SUITE_P(
    Samplers, MarginalTest,
    ::testing::Combine(::testing::Values(DynamicsKind::kFlowSde, DynamicsKind::kWanSde),
                       ::testing::Values(0.0, 0.3, 0.7, 1.0), ::testing::Values(0.4, 1.0)));
// A constant std is too large for the last steps, whose drift corrects by std^2 / 2 sigma.
// DanceGRPO drops its last transition, and so does this window.
INSTANTIATE_TEST_SUITE_P(Dance, MarginalTest,
                         ::testing::Values(std::tuple(DynamicsKind::kDanceSde, 0.3, 0.4),
                                           std::tuple(DynamicsKind::kDanceSde, 0.3, 0.8)));

// CPS is built to keep the marginal at every step size when the data and noise predictions are
// exact.
TEST(DynamicsTest, CpsKeepsTheNoiseLevel) {
  const StepKernel kernel = MakeKernel(DynamicsKind::kCps, .8, .8, .7, .96);
  // x = (1 - s) x0 + s e with v = e - x0: the mean is (1 - s') x0 + sqrt(s'^2 - std^2) e.
  const double of_clean = kernel.cx * (1 - .8) - kernel.cv;
  const double of_noise = kernel.cx * .8 + kernel.cv;
  EXPECT_NEAR(of_clean, 1 - .7, 1e-12);
  EXPECT_NEAR(of_noise * of_noise + kernel.scale * kernel.scale, .7 * .7, 1e-12);
}

// E[lp] = -1/2 - log S - log sqrt(2 pi) with standard deviation 1 / sqrt(2 D), and the log-ratio
// lp(moved) - lp(own) has mean -kappa and standard deviation sqrt(2 kappa / D).
TEST(DynamicsTest, LogProbAndRatioMomentsFollowTheory) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  constexpr int64_t kRows = 2000;
  constexpr int64_t kDims = 512;
  const StepKernel kernel = MakeKernel(DynamicsKind::kFlowSde, .7, .8, .7, .96);
  const at::Tensor x = Normal(kSeed, {kRows, kDims});
  const at::Tensor v = Normal(kSeed + 1, {kRows, kDims});
  const at::Tensor mean = KernelMean(kernel, x, v);
  const at::Tensor next = KernelStep(kernel, mean, Normal(kSeed + 2, {kRows, kDims}));
  const at::Tensor own = LogProb(kernel, mean, next);
  const double lp_std = 1 / std::sqrt(2. * kDims);
  const double lp_mean = -0.5 - std::log(kernel.scale) - 0.5 * std::log(2 * std::numbers::pi);
  EXPECT_NEAR(own.mean().item<double>(), lp_mean, 4 * lp_std / std::sqrt(kRows));
  EXPECT_NEAR(own.std().item<double>() / lp_std, 1, 0.07);

  const double shift = 0.2;
  const double kappa = KernelSensitivity(kernel) * shift * shift;
  const double ratio_std = std::sqrt(2 * kappa / kDims);
  const at::Tensor log_ratio = LogProb(kernel, KernelMean(kernel, x, v + shift), next) - own;
  EXPECT_NEAR(log_ratio.mean().item<double>(), -kappa, 4 * ratio_std / std::sqrt(kRows));
  EXPECT_NEAR(log_ratio.std().item<double>() / ratio_std, 1, 0.07);
}

SamplingSpec TenSteps() {
  return {.sigmas = SigmaGrid(ScheduleKind::kDiffusersDefault, 10, 3),
          .sde = {true, true, true, true, true, false, false, false, false, false}};
}

// The bits of a row may depend only on the row: only then are the ratios of the first update
// exactly 1.
TEST(DynamicsTest, ARowHasTheSameBitsInEveryBatch) {
  const SamplingSpec spec = TenSteps();
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{1, 16, 48}, {3, 5, 7}, {16, 33, 31}}) {
    constexpr int64_t kRows = 37;
    std::vector<int64_t> full = {kRows};
    full.insert(full.end(), shape.begin(), shape.end());
    std::vector<int> steps;
    for (int64_t r = 0; r < kRows; ++r) steps.push_back(static_cast<int>(r * 7 % 5));
    const at::Tensor x = Normal(1, full).to(at::kFloat);
    const at::Tensor v = Normal(2, full).to(at::kFloat);
    const at::Tensor next = Normal(3, full).to(at::kFloat);
    const auto rows = GatherKernels(spec, steps);
    const at::Tensor together = RowLogProb(*rows, RowMean(*rows, x, v), next);
    for (int64_t r = 0; r < kRows; ++r) {
      const auto row = GatherKernels(spec, {steps[static_cast<size_t>(r)]});
      const auto one = [r](const at::Tensor& t) { return t.slice(0, r, r + 1); };
      const at::Tensor alone = RowLogProb(*row, RowMean(*row, one(x), one(v)), one(next));
      ASSERT_EQ(alone.item<float>(), together[r].item<float>()) << "row " << r << " of " << full;
      const StepKernel kernel = KernelAt(spec, steps[static_cast<size_t>(r)]);
      ASSERT_EQ(LogProb(kernel, KernelMean(kernel, one(x), one(v)), one(next)).item<float>(),
                alone.item<float>());
    }
  }
}

TEST(DynamicsTest, TheLastStepIsDeterministicWhateverTheFlagsSay) {
  SamplingSpec spec = TenSteps();
  spec.sde.assign(10, true);
  EXPECT_EQ(KernelAt(spec, 9).scale, 0);
  EXPECT_GT(KernelAt(spec, 8).scale, 0);
}

// Promise: Guidance that is an input is one scale everywhere.
TEST(DynamicsTest, SpecIdSeesEveryField) {
  const SamplingSpec base = TenSteps();
  std::vector<SamplingSpec> specs(12, base);
  specs[1].sigmas[3] = std::nextafter(specs[1].sigmas[3], 0);
  specs[2].dynamics = DynamicsKind::kCps;
  specs[3].eta = .8;
  specs[4].sde[5] = true;
  specs[5].guidance = 4.5;
  specs[6].solver = SolverKind::kDpmpp2m;
  specs[7].solver = SolverKind::kDpmppHeun;
  specs[8].embedded_guidance = 3.5;
  specs[9].embedded_guidance = 4.5;  // As guidance it is another spec.
  specs[10] = specs[7];
  specs[10].embedded_guidance = 3.5;
  specs[11].whole_timesteps = true;
  for (size_t a = 0; a < specs.size(); ++a) {
    for (size_t b = 0; b < specs.size(); ++b) EXPECT_EQ(specs[a].Id() == specs[b].Id(), a == b);
  }
}

// The id is stored with every trajectory: its bytes must never change silently.
// Promise: Noise levels equal those of diffusers.
// Promise: Guidance that is an input is one scale everywhere.
TEST(DynamicsTest, SpecIdIsStable) {
  const SamplingSpec spec{.sigmas = {1, 0.5, 0}, .sde = {true, false}};
  EXPECT_EQ(spec.Id(), 0xa852a92b3e4d98beu);
  SamplingSpec with_trees = spec;
  with_trees.splits.width = 2;
  EXPECT_EQ(with_trees.Id(), spec.Id()) << "a width without splits means nothing";
  with_trees.splits.steps = {0};
  const uint64_t of_two = with_trees.Id();
  with_trees.splits.width = 3;
  EXPECT_NE(of_two, spec.Id());
  EXPECT_NE(of_two, with_trees.Id());
}

}  // namespace
}  // namespace oxbow::flow
