// SPDX-License-Identifier: Apache-2.0
// A few trials of `make chaos`, one for each kind of process, and properties of their plans.
#include <map>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/chaos/fault_plan.h"
#include "tests/chaos/preloaded_number.h"
#include "tests/chaos/trial.h"
#include "tests/testing/faulty_disk.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::chaos {
namespace {

using ::testing::IsEmpty;

TEST(FaultPlanTest, ASeedIsATrial) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    EXPECT_EQ(Describe(PlanTrial(seed)), Describe(PlanTrial(seed)));
  }
}

// Counts of the faults that the given seeds draw, of each kind.
std::map<FaultKind, int> CheckPlans(uint64_t first, uint64_t count) {
  std::map<FaultKind, int> drawn;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const TrialPlan plan = PlanTrial(seed);
    SCOPED_TRACE(Describe(plan));
    EXPECT_GE(plan.faults.size(), 1u);
    for (size_t i = 0; i < plan.faults.size(); ++i) {
      const Fault& fault = plan.faults[i];
      ++drawn[fault.kind];
      EXPECT_LT(fault.after_steps, kTrialSteps);
      if (i == 0) {
        EXPECT_FALSE(fault.overlaps);
      } else if (fault.overlaps) {
        EXPECT_EQ(fault.after_steps, plan.faults[i - 1].after_steps);
        EXPECT_LE(fault.delay, plan.faults[i - 1].lasts);
      } else {
        EXPECT_GT(fault.after_steps, plan.faults[i - 1].after_steps);
      }
    }
    if (plan.Any(NeedsOwnScorer)) {
      EXPECT_FALSE(plan.Has(FaultKind::kKillReward) || plan.Has(FaultKind::kStopReward) ||
                   plan.Has(FaultKind::kNoDescriptorsReward) || plan.Has(FaultKind::kCrowdReward))
          << "a run without reward servers";
    }
    if (plan.Has(FaultKind::kKillRank) || plan.Has(FaultKind::kStopRank) ||
        plan.Has(FaultKind::kDrainRank)) {
      EXPECT_EQ(plan.ranks, 2u);
    }
    EXPECT_EQ(kTrialGroups % plan.ranks, 0u);
    EXPECT_GE(plan.staleness_max + 1, plan.publish_every);
    EXPECT_TRUE(!plan.deterministic || plan.staleness_max == 0);
  }
  for (const auto& [kind, times] : drawn) EXPECT_GT(times, 50) << NameOf(kind);
  return drawn;
}

TEST(FaultPlanTest, EveryPlanCanBeRun) {
  EXPECT_EQ(CheckPlans(0, kFirstSeedOfAllKinds).size(), static_cast<size_t>(kFirstKinds));
  EXPECT_EQ(CheckPlans(kFirstSeedOfAllKinds, 4000).size(), static_cast<size_t>(kFaultKinds));
}

// Results of earlier seeds can be repeated: their plans stay. They changed once: a fault at the
// buffer now makes the run replay, since a run without replay starts no buffer.
TEST(FaultPlanTest, SeedsOfTheFirstKindsKeepTheirPlans) {
  std::string plans;
  for (uint64_t seed = 1; seed <= 130; ++seed) plans += Describe(PlanTrial(seed)) + "\n";
  EXPECT_EQ(Sha256Hex(plans), "8f05aeecf01bf0ef2725cde0c0264b8f4518af86db1d95633d7651f4ec138414");
}

TEST(FaultPlanTest, TwoFaultsAreThereAtOnceInManyPlans) {
  int overlapping = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const std::vector<Fault> faults = PlanTrial(kFirstSeedOfAllKinds + seed).faults;
    overlapping += faults.size() > 1 && faults[1].overlaps ? 1 : 0;
  }
  EXPECT_GT(overlapping, 250);
}

class ChaosTest : public ::testing::TestWithParam<uint64_t> {};

// Promise: A port that answers stays open.
// Promise: Runs under random faults keep the promises. Runs meet the faults of
// tests/chaos/README.md at seeded moments, also two at once: kills, stops, hanging threads, broken
// networks, full disks, no free descriptors, clocks that step, crowds of callers, scores that are
// NaN, a buffer that is away at a checkpoint, one shard of several that dies, a worker that dies at
// every start, stop signals to one rank and during a start, a second supervisor, damaged manifests
// and checkpoints. They are judged by what they leave. Checked are the promises about offers,
// entries per prompt, groups, deterministic bits, the end, weights, memory, order of prompts,
// second starts, damaged checkpoints and early ends. A few such runs are in CI, hundreds in `make
// chaos` (docs/lab/faults.md).
TEST_P(ChaosTest, PromisesHold) {
  const TrialPlan plan = PlanTrial(GetParam());
  SCOPED_TRACE(Describe(plan));
  const testing::ScopedDirectory scratch;
  Trials trials({.binaries = OXBOW_BINARY_DIR,
                 .source = OXBOW_SOURCE_DIR,
                 .preloaded = kPreloaded,
                 .disk = testing::kDiskFaults,
                 .scratch = scratch.path(),
                 .deadline = absl::Seconds(120)});
  const TrialReport report = trials.Run(plan);
  EXPECT_THAT(report.violations, IsEmpty());
  for (const FaultReport& fault : report.faults) {
    EXPECT_NE(fault.fate, FaultReport::Fate::kNotPossible) << fault.why;
  }
}

INSTANTIATE_TEST_SUITE_P(Seed, ChaosTest, ::testing::Values(22, 26, 28, 44, 1016, 1018, 1020));

}  // namespace
}  // namespace oxbow::chaos
