// SPDX-License-Identifier: Apache-2.0
// Workers come, go, stall, lag and lose the network; the run makes every group once and ends.
#include <signal.h>

#include <algorithm>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/elastic_run.h"
#include "tests/testing/network_proxy.h"

namespace oxbow::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::Not;
using ::testing::Pair;

constexpr char kInFlight[] = "oxbow_rollout_groups_in_flight";
constexpr char kExpired[] = "oxbow_learner_leases_total{event=\"expired\"}";
constexpr char kFailed[] = "oxbow_learner_leases_total{event=\"failed\"}";
constexpr char kSuperseded[] = "oxbow_learner_leases_total{event=\"superseded\"}";

std::string Delivered(const std::string& outcome) {
  return "oxbow_rollout_groups_total{outcome=\"" + outcome + "\"}";
}

// More steps than any scenario takes on any machine: the scenario ends the run.
constexpr char kEndless[] = "run.steps=100000";

// Every group of every step was trained, once.
void ExpectWhole(const ElasticRun& run) {
  const size_t steps = run.StepsCommitted();
  const std::map<uint64_t, int> groups = run.GroupsTrained();
  ASSERT_THAT(groups, Not(IsEmpty()));
  EXPECT_THAT(groups, Each(Pair(::testing::_, 1)));
  EXPECT_EQ(groups.size() % steps, 0u);
  EXPECT_EQ(groups.rbegin()->first + 1, groups.size());
}

// Lets groups in flight be trained, and ends the run as Ctrl-C does.
void EndRun(ElasticRun& run) {
  ASSERT_TRUE(run.AwaitSteps(3)) << "the run goes on";
  run.run().process().Kill(SIGINT);
  ASSERT_EQ(run.run().WaitExit().value(), 130) << run.run().process().error_output();
  ExpectWhole(run);
}

// Promise: A stalled worker delays nobody. A worker that stalls (SIGSTOP) loses its leases after
// `services.lease_seconds`, and its credit until it speaks again. Its later results are refused and
// counted. Before that, a slow group also goes to an idle worker, once. Slow means longer than
// `speculation_factor` times the .95 quantile of recent groups. The first result wins.
// The other is superseded and counts as no worker's failure. A worker that hangs and renews
// nevertheless keeps a group no longer than eight times the median of recent groups, at least four
// lease times; each further attempt at the group may last twice as long. A worker whose sampler has
// not advanced for four lease times gives its leases up by itself. A wall clock that is set back
// delays none of this. Not covered: a worker without this rule that hangs before eight groups of a
// start are known.
TEST(ElasticTest, StalledWorkerLosesItsLeaseAndItsLateResultIsRefused) {
  ElasticRun run({kEndless, "batch.groups=4", "services.lease_seconds=1",
                  "services.groups_in_flight=2", "services.speculation_factor=0"});
  run.Join("steady");
  Process& stalled = run.Join("stalled");
  ASSERT_TRUE(run.AwaitSteps(1));
  bool refused = false;
  // The worker may hold nothing when it is stopped, or only groups that it has not begun.
  for (int attempt = 0; attempt < 8 && !refused; ++attempt) {
    ASSERT_TRUE(run.AwaitWorker("stalled", kInFlight, 1));
    const double before = run.Learner(kExpired);
    stalled.Kill(SIGSTOP);
    const bool lost = run.AwaitLearner(kExpired, before + 1, absl::Seconds(4));
    stalled.Kill(SIGCONT);
    refused = lost && run.AwaitWorker("stalled", Delivered("fenced"), 1, absl::Seconds(3));
  }
  EXPECT_TRUE(refused);
  EndRun(run);
  EXPECT_THAT(run.log(), AllOf(HasSubstr("lease expired"), HasSubstr("late result refused")));
  EXPECT_GE(run.HighestAttempt(), 2u) << "the group was made by somebody else";
  EXPECT_GE(run.run().Series("rollout/groups_discarded").back(), 1);
}

// Promise: A stalled worker delays nobody.
TEST(ElasticTest, StragglersGroupsAreMadeByAnIdleWorkerLongBeforeTheirLeaseEnds) {
  ElasticRun run(
      {kEndless, "batch.groups=4", "services.lease_seconds=120", "services.groups_in_flight=2"});
  run.Join("steady");
  Process& stalled = run.Join("stalled");
  ASSERT_TRUE(run.AwaitSteps(3));
  bool helped = false;
  for (int attempt = 0; attempt < 8 && !helped; ++attempt) {
    ASSERT_TRUE(run.AwaitWorker("stalled", kInFlight, 1));
    const double before = run.Learner(kSuperseded);
    stalled.Kill(SIGSTOP);
    helped = run.AwaitLearner(kSuperseded, before + 1, absl::Seconds(5));
    stalled.Kill(SIGCONT);
  }
  EXPECT_TRUE(helped);
  EXPECT_EQ(run.Learner(kExpired), 0);
  EXPECT_EQ(run.Learner(kFailed), 0) << "superseded is not failed";
  EndRun(run);
}

// Promise: Workers come and go. A worker may join at any time, and a thousand at once: none is
// refused. On SIGTERM it delivers what it holds and no lease is lost. If it is killed, other
// workers make its groups.
TEST(ElasticTest, WorkersJoinLeaveAndDieAtAnyTime) {
  ElasticRun run({kEndless, "services.lease_seconds=3", "services.groups_in_flight=2",
                  "services.speculation_factor=0"});
  run.Join("first");
  ASSERT_TRUE(run.AwaitSteps(2));
  Process& leaving = run.Join("leaving");
  Process& dying = run.Join("dying");
  ASSERT_TRUE(run.AwaitWorker("leaving", Delivered("accepted"), 1)) << "a late joiner gets work";
  ASSERT_TRUE(run.AwaitWorker("dying", Delivered("accepted"), 1));
  leaving.Kill(SIGTERM);
  EXPECT_EQ(leaving.WaitExit(absl::Seconds(30)).value(), 0);
  EXPECT_EQ(run.Learner(kExpired), 0) << "who leaves in order delivers what it holds";
  EXPECT_EQ(run.Learner(kFailed), 0);
  EXPECT_EQ(run.run().Series("rollout/groups_discarded").back(), 0);
  ASSERT_TRUE(run.AwaitWorker("dying", kInFlight, 1));
  dying.Kill(SIGKILL);
  ASSERT_TRUE(run.AwaitSteps(2)) << "the run goes on with what is left";
  run.Join("last");
  EXPECT_TRUE(run.AwaitWorker("last", Delivered("accepted"), 1));
  EndRun(run);
}

// Stops a process half of the time.
class Brake {
 public:
  explicit Brake(Process& process) : process_(process) {
    thread_ = std::thread([this] {
      for (bool stop = true; !over_.WaitForNotificationWithTimeout(absl::Milliseconds(60));
           stop = !stop) {
        process_.Kill(stop ? SIGSTOP : SIGCONT);
      }
      process_.Kill(SIGCONT);
    });
  }
  ~Brake() {
    over_.Notify();
    thread_.join();
  }

 private:
  Process& process_;
  absl::Notification over_;
  std::thread thread_;
};

// Promise: No work is thrown away. If nobody dies, no result is refused, even with workers of
// different speeds, as long as the staleness budget has room (`rollout/groups_discarded` stays 0).
// Second leases of stragglers are off here, because they trade work for time. A group that takes
// more than eight times the median, and more than four lease times, counts as one that hangs.
// Promise: Staleness is bounded.
TEST(ElasticTest, WorkersOfDifferentSpeedsStayWithinTheBudgetAndNothingIsThrownAway) {
  for (const auto& [staleness, publish_every] : {std::pair(1, 2), std::pair(2, 1)}) {
    SCOPED_TRACE(::testing::Message() << "S " << staleness << " v " << publish_every);
    ElasticRun run({"run.steps=12", "off_policy.staleness_max=" + std::to_string(staleness),
                    "off_policy.publish_every=" + std::to_string(publish_every),
                    "services.groups_in_flight=2", "services.speculation_factor=0"});
    run.Join("quick");
    run.Join("quicker");
    const Brake brake(run.Join("slow"));
    ASSERT_EQ(run.run().WaitExit().value(), 0) << run.run().process().error_output();
    EXPECT_EQ(run.StepsCommitted(), 12u);
    ExpectWhole(run);
    const std::vector<double> stale = run.run().Series("rollout/staleness_max");
    EXPECT_THAT(stale, Each(Le(staleness)));
    EXPECT_GT(*std::max_element(stale.begin(), stale.end()), 0) << "the budget was not used";
    EXPECT_THAT(run.run().Series("rollout/groups_discarded"), Each(0.0));
    EXPECT_THAT(run.run().Series("rollout/leases_expired"), Each(0.0));
  }
}

// Promise: The network may break. Connections between a worker and all others may be delayed,
// silent, reset or half-open. The run continues when the network does. A connection that died
// without notice is detected within 20 s. A connection has five seconds to come about, so slow
// lines and machines that start a hundred processes at once are no failure. A service that gets
// another address behind its name is found there within seconds.
TEST(ElasticTest, RunGoesOnAfterEachKindOfBrokenNetwork) {
  ElasticRun run({kEndless, "services.lease_seconds=2", "services.groups_in_flight=2"});
  const auto proxy = NetworkProxy::Start("").value();
  // All calls of the worker, to any peer, go through the proxy.
  run.Join("far", {"OXBOW_HTTP_PROXY=1", "grpc_proxy=http://" + proxy->endpoint(),
                   "no_grpc_proxy=", "no_proxy="});
  ASSERT_TRUE(run.AwaitSteps(1));
  ASSERT_GE(proxy->connections(), 1u) << "the worker does not use the proxy";
  proxy->Delay(absl::Milliseconds(10));
  ASSERT_TRUE(run.AwaitSteps(2)) << "delay";
  proxy->Heal();

  ASSERT_TRUE(run.AwaitWorker("far", kInFlight, 1));
  const double before = run.Learner(kExpired);
  proxy->Drop();
  EXPECT_TRUE(run.AwaitLearner(kExpired, before + 1, absl::Seconds(6)));
  proxy->Heal();
  ASSERT_TRUE(run.AwaitSteps(2)) << "drop";

  proxy->Reset();
  EXPECT_FALSE(run.run().WaitExit(absl::Milliseconds(500)).ok());
  proxy->Heal();
  ASSERT_TRUE(run.AwaitSteps(2)) << "reset";

  proxy->HalfOpen();
  ASSERT_TRUE(run.AwaitSteps(2)) << "half open";
  EXPECT_GE(run.Worker("far", "oxbow_rollout_reconnects_total"), 1);
  EndRun(run);
  EXPECT_THAT(run.run().Series("train/onpolicy_ratio_err"), Each(0.0));
}

}  // namespace
}  // namespace oxbow::testing
