// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <tuple>
#include <utility>

#include "core/rl/success_record.h"

namespace oxbow::rl {
namespace {

using ::testing::ElementsAre;

double VarianceOf(const std::vector<double>& values) {
  double mean = 0, square = 0;
  for (const double value : values) {
    mean += value / static_cast<double>(values.size());
    square += value * value / static_cast<double>(values.size());
  }
  return square - mean * mean;
}

TEST(SuccessRateTest, OfRewardsZeroAndOneIsTheShareOfSuccesses) {
  for (int group = 1; group <= 24; ++group) {
    for (int right = 0; right <= group; ++right) {
      std::vector<double> rewards(static_cast<size_t>(group), 0.0);
      std::fill_n(rewards.begin(), right, 1.0);
      const double share = static_cast<double>(right) / group;
      EXPECT_NEAR(SuccessRate(rewards, 1), share, 1e-7) << right << " of " << group;
    }
  }
}

TEST(SuccessRateTest, HasTheSpreadOfTheGroupOnItsMeansSide) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  RandomStream random({.seed = seed});
  for (int i = 0; i < 1000; ++i) {
    std::vector<double> rewards;
    for (uint64_t n = 1 + random.NextBelow(24); n > 0; --n) rewards.push_back(random.NextUniform());
    const double p = SuccessRate(rewards, 1);
    EXPECT_GE(p, 0);
    EXPECT_LE(p, 1);
    EXPECT_NEAR(p * (1 - p), VarianceOf(rewards), 1e-12);
    double mean = 0;
    for (const double reward : rewards) mean += reward / static_cast<double>(rewards.size());
    EXPECT_EQ(p < 0.5, mean < 0.5);
  }
}

TEST(SuccessRateTest, EqualRewardsTeachNothingWhateverTheyAre) {
  for (const double reward : {-1.0, 0.0, 0.3, 0.5, 0.9, 1.0, 7.0}) {
    const double p = SuccessRate(std::vector<double>(8, reward), 1);
    EXPECT_NEAR(p * (1 - p), 0, 1e-12) << reward;
  }
}

TEST(SuccessRateTest, RewardsAreSharesOfTheFullOneWithinItsBounds) {
  EXPECT_DOUBLE_EQ(SuccessRate(std::vector<double>{0, 0, 0, 3}, 3), 0.25);
  EXPECT_DOUBLE_EQ(SuccessRate(std::vector<double>{-5, 0, 0, 9}, 3), 0.25);
  EXPECT_EQ(SuccessRate({}, 1), 0);
}

TEST(SuccessEvidenceTest, HalvesInItsHalfLifeAndNeverGrows) {
  const SuccessEvidence evidence{.successes = 6, .failures = 2, .step = LearnerStep(10)};
  EXPECT_EQ(AgedTo(evidence, LearnerStep(10)), evidence);
  EXPECT_EQ(AgedTo(evidence, LearnerStep(3)), evidence);
  const SuccessEvidence later = AgedTo(evidence, LearnerStep(30));
  EXPECT_DOUBLE_EQ(later.successes, 3);
  EXPECT_DOUBLE_EQ(later.failures, 1);
  EXPECT_EQ(later.step, LearnerStep(30));
  const SuccessEvidence in_two = AgedTo(AgedTo(evidence, LearnerStep(17)), LearnerStep(30));
  EXPECT_NEAR(in_two.successes, later.successes, 1e-12);
}

// The largest distance between the draws' distribution and a closed form.
double Distance(double a, double b, uint64_t seed, const std::function<double(double)>& closed) {
  constexpr int kDraws = 20'000;
  RandomStream random({.seed = seed});
  std::vector<double> draws;
  for (int i = 0; i < kDraws; ++i) draws.push_back(DrawBeta(random, a, b));
  std::sort(draws.begin(), draws.end());
  double distance = 0;
  for (int i = 0; i < kDraws; ++i) {
    distance =
        std::max(distance, std::abs(closed(draws[static_cast<size_t>(i)]) - (i + 0.5) / kDraws));
  }
  return distance;
}

// The limit of Kolmogorov and Smirnov's test that one run in a million passes by chance.
TEST(DrawBetaTest, HasTheDistributionOfItsClosedForms) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  constexpr double kLimit = 2.7 / 141.4;  // sqrt(20 000)
  EXPECT_LT(Distance(1, 1, seed, [](double x) { return x; }), kLimit);
  EXPECT_LT(Distance(5, 1, seed, [](double x) { return std::pow(x, 5); }), kLimit);
  EXPECT_LT(Distance(1, 9, seed, [](double x) { return 1 - std::pow(1 - x, 9); }), kLimit);
  EXPECT_LT(Distance(2, 2, seed, [](double x) { return x * x * (3 - 2 * x); }), kLimit);
  EXPECT_LT(Distance(3, 2, seed, [](double x) { return x * x * x * (4 - 3 * x); }), kLimit);
  EXPECT_LT(Distance(1.5, 1, seed, [](double x) { return std::pow(x, 1.5); }), kLimit);
}

std::vector<PromptEvidence> Example() {
  const auto known = [](uint64_t prompt, double successes, double failures) {
    return PromptEvidence{PromptId(prompt), {successes, failures, LearnerStep(0)}};
  };
  return {known(11, 8, 0), known(12, 4, 4), known(13, 0, 0), known(14, 0, 16), known(15, 3, 1)};
}

// How often each place comes first of many steps' rankings.
TEST(RankByLearnabilityTest, ComesFirstAsOftenAsInANaiveModel) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  constexpr int kTrials = 20'000;
  const std::vector<PromptEvidence> prompts = Example();
  std::mt19937_64 naive(seed);
  const auto beta = [&naive](double a, double b) {
    const double x = std::gamma_distribution<double>(a)(naive);
    return x / (x + std::gamma_distribution<double>(b)(naive));
  };
  std::map<uint32_t, double> first;
  std::map<uint32_t, double> expected;
  for (uint64_t trial = 0; trial < kTrials; ++trial) {
    ++first[RankByLearnability(prompts, seed + trial, LearnerStep(0))[0]];
    uint32_t best = 0;
    double nearest = 1;
    for (uint32_t i = 0; i < prompts.size(); ++i) {
      const SuccessEvidence& evidence = prompts[i].evidence;
      const double away = std::abs(beta(1 + evidence.successes, 1 + evidence.failures) - 0.5);
      if (away < nearest) std::tie(nearest, best) = std::pair(away, i);
    }
    ++expected[best];
  }
  for (uint32_t i = 0; i < prompts.size(); ++i) {
    const double spread = std::sqrt(2 * (expected[i] + 1));
    EXPECT_NEAR(first[i], expected[i], 5 * spread) << "place " << i;
  }
  EXPECT_GT(first[1], first[2]) << "half right before unknown";
  EXPECT_GT(first[2], first[0]) << "unknown before solved";
  EXPECT_GT(first[2], first[3]) << "unknown before hopeless";
  EXPECT_GT(first[3] + first[0], 0) << "nothing is given up";
}

TEST(RankByLearnabilityTest, CertaintyOrdersByDistanceFromAHalf) {
  const auto sure = [](uint64_t prompt, double p) {
    return PromptEvidence{PromptId(prompt), {1e9 * p, 1e9 * (1 - p), LearnerStep(5)}};
  };
  const std::vector<PromptEvidence> prompts = {sure(1, 0.99), sure(2, 0.3), sure(3, 0.52),
                                               sure(4, 0)};
  EXPECT_THAT(RankByLearnability(prompts, 7, LearnerStep(5)), ElementsAre(2, 1, 0, 3));
}

TEST(RankByLearnabilityTest, OldEvidenceIsForgotten) {
  const std::vector<PromptEvidence> prompts = {{PromptId(1), {0, 100, LearnerStep(0)}},
                                               {PromptId(2), {0, 100, LearnerStep(1000)}}};
  int first = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    first += RankByLearnability(prompts, seed, LearnerStep(1000))[0] == 0 ? 1 : 0;
  }
  EXPECT_GT(first, 90);
}

TEST(RankByLearnabilityTest, TwoPromptsKeepTheirOrderWhenOthersGo) {
  const std::vector<PromptEvidence> all = Example();
  for (uint64_t step = 0; step < 200; ++step) {
    const std::vector<uint32_t> ranking = RankByLearnability(all, 3, LearnerStep(step));
    const std::vector<PromptEvidence> two = {all[4], all[1]};
    const auto place = [&ranking](uint32_t i) {
      return std::find(ranking.begin(), ranking.end(), i);
    };
    const bool fourth_first = RankByLearnability(two, 3, LearnerStep(step))[0] == 0;
    EXPECT_EQ(fourth_first, place(4) < place(1)) << step;
  }
}

TEST(RankByLearnabilityTest, StepsSeedsAndExtrasHaveDrawsOfTheirOwn) {
  std::vector<PromptEvidence> prompts;
  for (uint64_t i = 0; i < 64; ++i) prompts.push_back({PromptId(i), {}});
  const std::vector<uint32_t> ranking = RankByLearnability(prompts, 3, LearnerStep(1));
  EXPECT_EQ(ranking, RankByLearnability(prompts, 3, LearnerStep(1)));
  EXPECT_NE(ranking, RankByLearnability(prompts, 3, LearnerStep(2)));
  EXPECT_NE(ranking, RankByLearnability(prompts, 4, LearnerStep(1)));
  EXPECT_NE(ranking, RankByLearnability(prompts, 3, LearnerStep(1), /*extra=*/true));
}

}  // namespace
}  // namespace oxbow::rl
