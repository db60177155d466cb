// SPDX-License-Identifier: Apache-2.0
// Runs with a worker that fails whatever it is given, one that reads no answers, and one of another
// revision of the protocol: they end well, with the workers that are well.
#include "tests/testing/bad_worker.h"

#include <cstdio>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/elastic_run.h"

namespace oxbow::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kSteps = 40;
constexpr uint64_t kGroups = 8;

std::vector<std::string> Overrides() {
  return {"run.steps=40", "batch.groups=8", "services.lease_seconds=5", "replay.fraction=0",
          "eval.every=0"};
}

void ExpectWell(ElasticRun& run) {
  EXPECT_EQ(run.run().WaitExit().value(), 0) << run.run().process().error_output();
  EXPECT_EQ(run.StepsCommitted(), kSteps);
}

// Promise: One bad worker ends no run.
TEST(BadWorkerRunTest, AWorkerThatFailsAtOnceGetsFewLeasesAndTheRunEndsWell) {
  ElasticRun run(Overrides());
  BadWorker bad(run.learner(), BadWorker::Kind::kFails);
  ASSERT_TRUE(run.AwaitLearner("oxbow_learner_workers_bad", 1)) << "before any worker is well";
  run.Join("a");
  run.Join("b");
  ExpectWell(run);
  EXPECT_GE(bad.leases(), 3u);
  EXPECT_LT(bad.leases(), kSteps * kGroups / 20) << "less than 5 %";
  EXPECT_THAT(run.log(), HasSubstr("worker gets no lease for a while"));
  EXPECT_THAT(run.GroupsTrained(), ::testing::SizeIs(kSteps * kGroups));
}

// Promise: A peer that does not read fills no memory.
TEST(BadWorkerRunTest, AWorkerThatReadsNothingIsCutOffAndTheLearnerStaysSmall) {
  ElasticRun run(Overrides());
  run.Join("a");
  ASSERT_TRUE(run.AwaitSteps(1));
  const double before = run.Learner("process_resident_memory_bytes");
  BadWorker deaf(run.learner(), BadWorker::Kind::kReadsNothing);
  ASSERT_TRUE(run.AwaitLearner("oxbow_learner_streams_cut_total", 3));
  const double more = run.Learner("process_resident_memory_bytes") - before;
  EXPECT_LT(more, 64e6);
  ExpectWell(run);
  std::printf("%d streams cut, %.1f MB more\n", static_cast<int>(deaf.cut_offs()), more / 1e6);
}

// Promise: Processes of one run speak one protocol.
TEST(BadWorkerRunTest, AWorkerOfAnotherRevisionIsRefusedAndTheRunGoesOn) {
  ElasticRun run(Overrides());
  const BadWorker other(run.learner(), BadWorker::Kind::kOtherRevision);
  run.Join("a");
  ExpectWell(run);
  EXPECT_GT(other.refusals(), 1u);
  const std::string log = run.log();
  const size_t first = log.find("run one version of oxbow in all processes");
  ASSERT_NE(first, std::string::npos);
  EXPECT_THAT(log.substr(first + 1), Not(HasSubstr("run one version of oxbow"))) << "once";
}

}  // namespace
}  // namespace oxbow::testing
