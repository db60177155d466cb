// A few trials of `make chaos`, one for each kind of process, and properties of their plans.
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/chaos/fault_plan.h"
#include "tests/chaos/trial.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::chaos {
namespace {

using ::testing::IsEmpty;

TEST(FaultPlanTest, ASeedIsATrial) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    EXPECT_EQ(Describe(PlanTrial(seed)), Describe(PlanTrial(seed)));
  }
}

TEST(FaultPlanTest, EveryPlanCanBeRun) {
  std::map<FaultKind, int> drawn;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const TrialPlan plan = PlanTrial(seed);
    SCOPED_TRACE(Describe(plan));
    EXPECT_GE(plan.faults.size(), 1u);
    for (size_t i = 0; i < plan.faults.size(); ++i) {
      ++drawn[plan.faults[i].kind];
      EXPECT_LT(plan.faults[i].after_steps, kTrialSteps);
      const uint64_t least = i == 0 ? 0 : plan.faults[i - 1].after_steps + 1;
      EXPECT_GE(plan.faults[i].after_steps, least);
    }
    if (plan.Has(FaultKind::kKillRank) || plan.Has(FaultKind::kStopRank)) {
      EXPECT_EQ(plan.ranks, 2u);
    }
    EXPECT_EQ(kTrialGroups % plan.ranks, 0u);
    EXPECT_GE(plan.staleness_max + 1, plan.publish_every);
    EXPECT_TRUE(!plan.deterministic || plan.staleness_max == 0);
  }
  EXPECT_EQ(drawn.size(), static_cast<size_t>(kFaultKinds));
  for (const auto& [kind, times] : drawn) EXPECT_GT(times, 50) << NameOf(kind);
}

class ChaosTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(ChaosTest, PromisesHold) {
  const TrialPlan plan = PlanTrial(GetParam());
  SCOPED_TRACE(Describe(plan));
  const testing::ScopedDirectory scratch;
  Trials trials({.binaries = OXBOW_BINARY_DIR,
                 .source = OXBOW_SOURCE_DIR,
                 .scratch = scratch.path(),
                 .deadline = absl::Seconds(120)});
  const TrialReport report = trials.Run(plan);
  EXPECT_THAT(report.violations, IsEmpty());
  for (const FaultReport& fault : report.faults) {
    EXPECT_NE(fault.fate, FaultReport::Fate::kNotPossible) << fault.why;
  }
}

INSTANTIATE_TEST_SUITE_P(Seed, ChaosTest, ::testing::Values(22, 26, 28, 44));

}  // namespace
}  // namespace oxbow::chaos
