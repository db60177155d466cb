// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/rl/grpo.h"
#include "core/rl/method.h"
#include "core/rl/penalties.h"
#include "core/rl/step_metrics.h"
#include "tests/golden/golden.h"

namespace oxbow::rl {
namespace {

using ::oxbow::testing::Golden;
using ::oxbow::testing::kGoldenTolerance;

at::Tensor One(double value) { return at::full({1}, value, at::kDouble); }
ClipRange Even(double range) { return {.low = range, .high = range}; }

TEST(ObjectiveTest, GoldenLosses) {
  for (const auto& r : Golden()["objective"]) {
    const auto fresh =
        ClippedLoss(One(r["lp_new"]), One(r["lp_old"]), One(r["adv"]), One(1), Even(r["eps"]));
    EXPECT_NEAR(fresh.item<double>(), r["ppo_loss"], kGoldenTolerance);
    const auto naive =
        ClippedLoss(One(r["lp_new"]), One(r["lp_off"]), One(r["adv"]), One(1), Even(r["eps"]));
    EXPECT_NEAR(naive.item<double>(), r["naive_loss"], kGoldenTolerance);
    const auto off = OffPolicyLoss(One(r["lp_new"]), One(r["lp_old"]), One(r["lp_off"]),
                                   One(r["adv"]), Even(r["eps"]));
    EXPECT_NEAR(-off.item<double>(), r["off_policy_grpo"], kGoldenTolerance);
  }
}

// GSPO: one ratio of a path's mean log-probs, and one clip; gradients reach each step through the
// mean.
TEST(ObjectiveTest, GoldenLossesAndGradientsOfWholePaths) {
  for (const auto& r : testing::ReuseGolden()["gspo"]) {
    std::vector<PlannedTrajectory> paths(r["paths"].size());
    std::vector<RowRef> refs;
    std::vector<double> now, old, advantages, weights;
    for (size_t p = 0; p < paths.size(); ++p) {
      const auto& path = r["paths"][p];
      for (size_t i = 0; i < path["new"].size(); ++i) {
        refs.push_back({.trajectory = &paths[p]});
        now.push_back(path["new"][i]);
        old.push_back(path["old"][i]);
        advantages.push_back(path["advantage"]);
        weights.push_back(path["weight"]);
      }
    }
    const auto row = [](const std::vector<double>& of) { return at::tensor(of, at::kDouble); };
    at::Tensor lp = row(now).requires_grad_(true);
    const at::Tensor losses =
        ClippedLoss(PathMeans(lp, refs), PathMeans(row(old), refs), row(advantages), row(weights),
                    {.low = r["low"], .high = r["high"]});
    losses.sum().backward();
    for (size_t i = 0; i < refs.size(); ++i) {
      const auto place = static_cast<int64_t>(i);
      EXPECT_NEAR(losses[place].item<double>(), r["losses"][i], kGoldenTolerance);
      EXPECT_NEAR(lp.grad()[place].item<double>(), r["gradients"][i], kGoldenTolerance);
    }
  }
}

// Log-ratios inside the clip, above and below it, for both signs of the advantage.
TEST(ObjectiveTest, GradientsMatchFiniteDifferencesOnBothSidesOfTheClip) {
  constexpr double kStep = 1e-6;
  for (const double clip : {1e-3, 0.2}) {
    for (const double offset : {-3., -0.5, 0.5, 3.}) {
      for (const double advantage : {1.5, -1.5}) {
        const auto clipped = [&](const at::Tensor& lp) {
          return ClippedLoss(lp, One(-1), One(advantage), One(.7), Even(clip));
        };
        const auto off_policy = [&](const at::Tensor& lp) {
          return OffPolicyLoss(lp, One(-1), One(-1.1), One(advantage), Even(clip));
        };
        const auto check = [&](const auto& loss) {
          const double at_lp = -1 + offset * clip;
          at::Tensor lp = One(at_lp).requires_grad_(true);
          loss(lp).sum().backward();
          const double slope =
              (loss(One(at_lp + kStep)) - loss(One(at_lp - kStep))).template item<double>() /
              (2 * kStep);
          EXPECT_NEAR(lp.grad().item<double>(), slope, 1e-8)
              << clip << " " << offset << " " << advantage;
        };
        check(clipped);
        check(off_policy);
        at::Tensor lp = One(-1 + offset * clip).requires_grad_(true);
        clipped(lp).sum().backward();
        const bool silenced = (offset > 1 && advantage > 0) || (offset < -1 && advantage < 0);
        EXPECT_EQ(lp.grad().item<double>() == 0, silenced) << offset << " " << advantage;
      }
    }
  }
}

// Each side of the clip is the even clip of its own range: value and gradient.
TEST(ObjectiveTest, AnUnevenClipIsTwoHalves) {
  constexpr ClipRange kUneven{.low = .1, .high = .3};
  for (const double log_ratio : {-.5, -.2, -.05, 0., .05, .2, .5}) {
    for (const double advantage : {1.5, -1.5}) {
      const double half = log_ratio > 0 ? kUneven.high : kUneven.low;
      const auto check = [&](const auto& loss) {
        at::Tensor lp = One(log_ratio).requires_grad_(true);
        at::Tensor lp_even = One(log_ratio).requires_grad_(true);
        const at::Tensor uneven = loss(lp, kUneven), even = loss(lp_even, Even(half));
        EXPECT_TRUE(at::equal(uneven, even)) << log_ratio << " " << advantage;
        uneven.sum().backward();
        even.sum().backward();
        EXPECT_TRUE(at::equal(lp.grad(), lp_even.grad())) << log_ratio << " " << advantage;
      };
      check([&](const at::Tensor& lp, ClipRange clip) {
        return ClippedLoss(lp, One(0), One(advantage), One(.7), clip);
      });
      check([&](const at::Tensor& lp, ClipRange clip) {
        return OffPolicyLoss(lp, One(0), One(0), One(advantage), clip);
      });
    }
  }
}

TEST(ObjectiveTest, NothingButTheNewLogProbGetsAGradient) {
  at::Tensor lp = One(-1).requires_grad_(true), old = One(-1).requires_grad_(true);
  at::Tensor advantage = One(1).requires_grad_(true), weight = One(.5).requires_grad_(true);
  ClippedLoss(lp, old, advantage, weight, Even(.1)).sum().backward();
  EXPECT_DOUBLE_EQ(lp.grad().item<double>(), -.5);
  EXPECT_FALSE(old.grad().defined() || advantage.grad().defined() || weight.grad().defined());
}

TEST(ObjectiveTest, KlGradientAndScale) {
  const at::Tensor reference = at::tensor({.1, -.4, .8, -.25}, at::kDouble).view({1, 4});
  at::Tensor v = at::tensor({.12, -.37, .79, -.28}, at::kDouble).view({1, 4}).requires_grad_(true);
  const auto kernel = flow::MakeKernel(flow::DynamicsKind::kFlowSde, .7, .8, .7, .96);
  const double scale = KlScale(KlSpace::kMean, kernel);
  const at::Tensor kl = RowKl(v, reference, One(scale));
  EXPECT_NEAR(kl.item<double>(), 2.27363360969e-6, 1e-16);
  kl.sum().backward();
  const at::Tensor want = (v.detach() - reference) * (2 * scale / 4);
  EXPECT_LT((v.grad() - want).abs().max().item<double>(), 1e-15);
}

TEST(ObjectiveTest, KlOfLatentsIsTheDistanceOfTheMeans) {
  const at::Tensor x = at::tensor({.3, -.9, .2, 1.1}, at::kDouble).view({1, 4});
  const at::Tensor reference = at::tensor({.1, -.4, .8, -.25}, at::kDouble).view({1, 4});
  const at::Tensor v = at::tensor({.12, -.37, .79, -.28}, at::kDouble).view({1, 4});
  for (const auto kind : {flow::DynamicsKind::kFlowSde, flow::DynamicsKind::kDanceSde}) {
    const auto kernel = flow::MakeKernel(kind, .7, .8, .7, .96);
    const at::Tensor mean = kernel.cx * x + kernel.cv * v;
    const at::Tensor other = kernel.cx * x + kernel.cv * reference;
    EXPECT_NEAR(RowKl(v, reference, One(KlScale(KlSpace::kLatent, kernel))).item<double>(),
                (mean - other).square().mean().item<double>(), 1e-16);
  }
}

TEST(RatioStatisticsTest, CountsSidesOriginsStepsAndSilencedRows) {
  RatioStatistics statistics;
  statistics.Add(Origin::kFresh, 2, 0, 1, Even(.1));
  statistics.Add(Origin::kFresh, 7, .2, 1, Even(.1));
  statistics.Add(Origin::kReplay, 7, -.2, 1, Even(.1));
  statistics.Add(Origin::kReplay, 2, .3, -1, Even(.1));
  std::map<std::string, double> metrics;
  statistics.AppendMetrics(metrics);
  EXPECT_DOUBLE_EQ(metrics["train/clip_frac_total"], .75);
  EXPECT_DOUBLE_EQ(metrics["train/clip_frac_high"], .5);
  EXPECT_DOUBLE_EQ(metrics["train/clip_frac_low"], .25);
  EXPECT_DOUBLE_EQ(metrics["train/clip_frac_zero_grad"], .25);
  EXPECT_DOUBLE_EQ(metrics["train/clip_frac_fresh"], .5);
  EXPECT_DOUBLE_EQ(metrics["train/clip_frac_replay"], 1);
  EXPECT_EQ(metrics.count("train/clip_frac_stale"), 0u);
  EXPECT_DOUBLE_EQ(metrics["train/clip_frac_step_2"], .5);
  EXPECT_DOUBLE_EQ(metrics["train/clip_frac_step_7"], 1);
  EXPECT_EQ(metrics.count("train/clip_frac_step_3"), 0u);
  EXPECT_NEAR(metrics["train/approx_kl"], .5 * (.04 + .04 + .09) / 4, 1e-15);
  EXPECT_NEAR(metrics["train/ratio_max"], std::exp(.3), 1e-12);
}

// Fig. 2 of OP-GRPO compares stored rows with fresh ones.
TEST(LogProbsByStepTest, AreOfDrawnRowsAndOfStoredOnes) {
  LogProbsByStep log_probs;
  PlannedTrajectory trajectory;
  const auto add = [&](Origin origin, int step, bool on_policy, float behaviour, double moved) {
    trajectory.origin = origin;
    PlannedRow row{.step = step, .on_policy = on_policy, .log_prob_behaviour = behaviour};
    log_probs.Add({.trajectory = &trajectory, .row = &row}, moved);
  };
  add(Origin::kFresh, 3, /*on_policy=*/true, -1, 0);
  add(Origin::kFresh, 3, /*on_policy=*/true, -2, 0);
  add(Origin::kStale, 4, /*on_policy=*/false, -2, .25);
  add(Origin::kReplay, 3, /*on_policy=*/false, -1, -.5);
  add(Origin::kReplay, 4, /*on_policy=*/true, -1, 0);
  std::map<std::string, double> metrics;
  log_probs.AppendMetrics(metrics);
  EXPECT_THAT(metrics, ::testing::UnorderedElementsAre(
                           ::testing::Pair("train/log_prob_drawn_step_3", -1.5),
                           ::testing::Pair("train/log_prob_drawn_step_4", -1.75),
                           ::testing::Pair("train/log_prob_replay_step_3", -1.5)));
}

TEST(SurrogateSpreadTest, IsOfTheSamplesOfAGroup) {
  SurrogateSpread spread;
  const auto add = [&](size_t group, size_t sample, double value) {
    spread.Add({.address = {.group = group, .trajectory = sample}}, value);
  };
  add(0, 0, 1);  // Its mean is 2, that of the other 4: deviation 1, mean 3.
  add(0, 0, 3);
  add(0, 1, 4);
  add(1, 0, 5);  // No spread.
  add(1, 1, 5);
  add(2, 0, 9);  // One sample has none.
  std::map<std::string, double> metrics;
  spread.AppendMetrics(metrics);
  EXPECT_THAT(metrics, ::testing::ElementsAre(::testing::Pair(
                           "train/surrogate_cv", ::testing::DoubleNear(1. / 6, 1e-15))));
}

TEST(RatioStatisticsTest, SidesHaveRangesOfTheirOwn) {
  RatioStatistics statistics;
  for (const double log_ratio : {-.2, .2}) {
    statistics.Add(Origin::kFresh, 0, log_ratio, 1, {.low = .1, .high = .3});
  }
  std::map<std::string, double> metrics;
  statistics.AppendMetrics(metrics);
  EXPECT_DOUBLE_EQ(metrics["train/clip_frac_low"], .5);
  EXPECT_DOUBLE_EQ(metrics["train/clip_frac_high"], 0);
}

}  // namespace
}  // namespace oxbow::rl
