#include "core/rl/advantage.h"

#include <gmock/gmock.h>

#include "tests/golden/golden.h"

namespace oxbow::rl {
namespace {

using ::oxbow::testing::Golden;
using ::oxbow::testing::kGoldenTolerance;
using ::testing::DoubleNear;
using ::testing::Pointwise;
using Rewards = std::vector<std::vector<std::optional<double>>>;

std::vector<double> Flat(const Rewards& rewards, const AdvantageOptions& options) {
  std::vector<double> all;
  for (const auto& group : ComputeAdvantages(rewards, options)) {
    all.insert(all.end(), group.advantages.begin(), group.advantages.end());
  }
  return all;
}

TEST(AdvantageTest, Golden) {
  for (const auto& r : Golden()["advantage"]) {
    Rewards rewards(4);
    for (size_t i = 0; i < r["rewards"].size(); ++i) {
      rewards[r["groups"][i].get<size_t>()].push_back(r["rewards"][i].get<double>());
    }
    const auto expect = [&](const AdvantageOptions& options, const char* name) {
      EXPECT_THAT(Flat(rewards, options),
                  Pointwise(DoubleNear(kGoldenTolerance), r[name].get<std::vector<double>>()))
          << name;
    };
    expect({}, "flow_grpo_group");
    expect({.std = AdvantageStd::kGlobal}, "flow_grpo_global");
    expect({.ddof = 1, .epsilon = 1e-8}, "ddof1");
  }
}

TEST(AdvantageTest, FailedRewardsAreNoPartOfTheStatistics) {
  const auto with = ComputeAdvantages({{.2, std::nullopt, .9, .5}}, {})[0];
  const auto without = ComputeAdvantages({{.2, .9, .5}}, {})[0];
  EXPECT_EQ(with.advantages, (std::vector<double>{without.advantages[0], 0, without.advantages[1],
                                                  without.advantages[2]}));
}

TEST(AdvantageTest, EqualRewardsHaveNoVarianceEvenWhereTheMeanRounds) {
  const auto group = ComputeAdvantages({{.1, .1, .1, .1, .1, .1, .1}}, {})[0];
  EXPECT_FALSE(group.has_variance);
  for (const double advantage : group.advantages) EXPECT_EQ(advantage, 0);
  EXPECT_FALSE(ComputeAdvantages({{.7, std::nullopt}}, {})[0].has_variance);
}

TEST(AdvantageTest, ClipsLoneSuccesses) {
  std::vector<std::optional<double>> rewards(40, 0.0);
  rewards[0] = 1;
  EXPECT_EQ(ComputeAdvantages({rewards}, {})[0].advantages[0], 5);
  EXPECT_NEAR(ComputeAdvantages({rewards}, {.std = AdvantageStd::kNone})[0].advantages[0], .975,
              1e-12);
}

}  // namespace
}  // namespace oxbow::rl
