// SPDX-License-Identifier: Apache-2.0
// Workers forward weights to each other, and a run does not depend on any of them. Collapsed
// weights reach no worker.
#include <signal.h>

#include <fstream>
#include <iterator>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/elastic_run.h"

namespace oxbow::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr char kFromPeer[] = "oxbow_weights_fetched_bytes_total{source=\"peer\"}";
constexpr char kRelayed[] = "oxbow_weights_relayed_bytes_total";
constexpr char kWatchers[] = "oxbow_weights_watchers";
constexpr char kCopies[] = "oxbow_weights_egress_copies";

// Promise: No slow worker delays new weights.
TEST(RelayTest, TheRunFinishesWhenARelayingWorkerIsKilled) {
  ElasticRun run({"run.steps=100000", "services.lease_seconds=2"});
  // In this order, so that the third worker asks the first.
  int watching = 0;
  for (const char* name : {"first", "second", "third"}) {
    run.Join(name);
    ASSERT_TRUE(run.AwaitLearner(kWatchers, ++watching));
  }
  ASSERT_TRUE(run.AwaitWorker("third", kFromPeer, 1));
  ASSERT_TRUE(run.AwaitWorker("first", kRelayed, 1));
  ASSERT_TRUE(run.AwaitSteps(2));
  EXPECT_LE(run.Learner(kCopies), 2.0) << "what the learner sends does not grow with its workers";

  run.worker("first").Kill(SIGKILL);
  ASSERT_TRUE(run.AwaitSteps(2));
  run.Join("fourth");  // Gets all of the newest weights from its present source.
  ASSERT_TRUE(run.AwaitWorker("fourth", kFromPeer, 1));

  run.run().process().Kill(SIGINT);
  ASSERT_EQ(run.run().WaitExit().value(), 130) << run.run().process().error_output();
  EXPECT_THAT(run.GroupsTrained(), Each(Pair(::testing::_, 1)));
  EXPECT_THAT(run.run().Series("train/onpolicy_ratio_err"), Each(0.0));
}

// A learning rate that ruins the policy at once.
// Promise: Bad weights are not published.
TEST(RelayTest, CollapsedWeightsAreWithheldAndTheRunStopsWithOneLine) {
  TrainingRun run({"run.steps=30", "optimizer.learning_rate=0.02", "method.clip_range=0.1",
                   "eval.every=1", "eval.images=32", "publish.reward_floor=0.7"});
  EXPECT_EQ(run.WaitExit().value(), 4) << run.process().error_output();
  EXPECT_THAT(run.process().error_output(), HasSubstr("learner ended with exit code 4"));
  std::ifstream in(run.directory() / "logs" / "learner.log");
  const std::string log((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  EXPECT_THAT(log, HasSubstr("learner: held-out reward collapsed"));
}

}  // namespace
}  // namespace oxbow::testing
