// SPDX-License-Identifier: Apache-2.0
// Weights by broadcast to workers that join and die, without any effect on the numbers of the run.
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/elastic_run.h"

namespace oxbow::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::Gt;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr char kByBroadcast[] = "oxbow_weights_fetched_bytes_total{source=\"broadcast\"}";
constexpr char kMembers[] = "oxbow_weights_broadcast_members";

// Promise: A broadcast can only save time.
TEST(BroadcastTest, AMemberIsKilledAndTheRunHasTheLossesOfOneThatRelays) {
  const std::vector<std::string> settings = {"run.steps=100000", "run.deterministic=true",
                                             "replay.fraction=0", "services.lease_seconds=2"};
  std::vector<std::string> overrides = settings;
  overrides.push_back("publish.transport=broadcast");
  ElasticRun run(overrides);
  run.Join("first");
  run.Join("second");
  ASSERT_TRUE(run.AwaitLearner(kMembers, 2));
  ASSERT_TRUE(run.AwaitWorker("first", kByBroadcast, 1));
  ASSERT_TRUE(run.AwaitWorker("second", kByBroadcast, 1));

  run.worker("first").Kill(SIGKILL);
  ASSERT_TRUE(run.AwaitSteps(2));
  const double before = run.Worker("second", kByBroadcast);
  ASSERT_TRUE(run.AwaitWorker("second", kByBroadcast, before + 1))
      << "no broadcast group without the dead";

  run.Join("third");
  ASSERT_TRUE(run.AwaitLearner(kMembers, 2));
  ASSERT_TRUE(run.AwaitWorker("third", kByBroadcast, 1));
  run.run().process().Kill(SIGINT);
  ASSERT_EQ(run.run().WaitExit().value(), 130) << run.run().process().error_output();
  EXPECT_THAT(run.GroupsTrained(), Each(Pair(::testing::_, 1)));
  EXPECT_THAT(run.run().Series("train/onpolicy_ratio_err"), Each(0.0));

  std::vector<double> losses = run.run().Series("train/loss");
  ASSERT_THAT(losses, SizeIs(Gt(2u)));
  TrainingRun relayed(settings);
  ASSERT_TRUE(relayed.WaitForStep(static_cast<int64_t>(losses.size())));
  relayed.process().Kill(SIGINT);
  ASSERT_EQ(relayed.WaitExit().value(), 130) << relayed.process().error_output();
  std::vector<double> expected = relayed.Series("train/loss");
  const size_t both = std::min(losses.size(), expected.size());
  losses.resize(both);
  expected.resize(both);
  EXPECT_THAT(losses, ElementsAreArray(expected));
}

}  // namespace
}  // namespace oxbow::testing
