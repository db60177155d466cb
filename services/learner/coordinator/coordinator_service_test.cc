// SPDX-License-Identifier: Apache-2.0
// The learner's services over a real channel: leases, fences and credits as a worker sees them.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/testing/coordinator_fixture.h"

namespace oxbow::learner {
namespace {

TEST_F(CoordinatorServiceTest, GroupsGoFromLeaseToTheLearnerSortedById) {
  WorkerStreams worker(server_->endpoint(), "a");
  worker.Credit(0, 2);
  const v1::Lease first = worker.Next().lease();
  const v1::Lease second = worker.Next().lease();
  EXPECT_EQ(first.group_id(), 0u);
  EXPECT_EQ(second.group_id(), 1u);
  EXPECT_EQ(second.prompt().text(), "text 123");
  EXPECT_EQ(worker.Insert(worker.Result(second, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
  EXPECT_EQ(worker.Insert(worker.Result(first, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
  EXPECT_EQ(worker.Insert(worker.Result(first, 0)).outcome(), v1::INSERT_OUTCOME_DUPLICATE);
  const auto groups = assembler_.Take(LearnerStep(0), 2, absl::Seconds(10));
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_EQ((*groups)[0].group.group_id(), 0u);
  EXPECT_EQ((*groups)[1].group.trajectories(1).latents().data().size(), 64u);
}

// Promise: Staleness is bounded.
TEST_F(CoordinatorServiceTest, NewWeightsAdmitTheNextStepAndStaleOnesDoNot) {
  coordinator_.Plan(PlanOf(1));
  WorkerStreams worker(server_->endpoint(), "a");
  worker.Credit(0, 4);
  for (int i = 0; i < 2; ++i) {
    const v1::Lease lease = worker.Next().lease();
    EXPECT_EQ(worker.Insert(worker.Result(lease, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
  }
  EXPECT_TRUE(worker.Renew(1).empty()) << "nothing but the renewal comes back: no lease is left";
  coordinator_.published().Add(PolicyVersion(2), LearnerStep(1));
  worker.Credit(2, 4);
  const v1::Lease next = worker.Next().lease();
  EXPECT_EQ(next.group_id(), 2u);
  EXPECT_EQ(next.policy_version_min(), 2u);
}

// Promise: Conditioning is what the learner made.
TEST_F(CoordinatorServiceTest, ALeaseNamesItsConditioningAndTheWorkersThatWereLeasedIt) {
  const auto bytes = std::make_shared<const std::string>(1 << 20, 'c');
  StepPlan plan = PlanOf(1);
  for (PlannedGroup& group : plan.groups) group.conditioning = {"the hash", bytes};
  coordinator_.Plan(std::move(plan));
  coordinator_.published().Add(PolicyVersion(2), LearnerStep(1));
  for (const char* name : {"first", "mute"}) {
    WorkerStreams idle(server_->endpoint(), name);
    idle.Credit(2, 1);
    EXPECT_TRUE(idle.Next().lease().conditioning_sha256().empty()) << "no conditioning was planned";
  }
  WorkerStreams first(server_->endpoint(), "first");
  first.Credit(2, 1);
  const v1::Lease alone = first.Next().lease();
  EXPECT_EQ(alone.conditioning_sha256(), "the hash");
  EXPECT_EQ(alone.conditioning_bytes(), bytes->size());
  EXPECT_EQ(alone.conditioning_peers_size(), 0);
  EXPECT_LT(alone.ByteSizeLong(), 1000u) << "the bytes do not travel with the lease";
  WorkerStreams mute(server_->endpoint(), "mute");
  mute.Credit(2, 1);
  const v1::Lease second = mute.Next().lease();
  ASSERT_EQ(second.conditioning_peers_size(), 1);
  EXPECT_EQ(second.conditioning_peers(0).worker_id(), "first");
  EXPECT_EQ(second.conditioning_peers(0).endpoint(), "first:1");
  mute.Fail(second.lease_id(), "scorer broke");
  (void)mute.Renew(1);
  clock_.Advance(absl::Seconds(11));
  WorkerStreams third(server_->endpoint(), "third");
  third.Credit(2, 1);
  const v1::Lease again = third.Next().lease();
  EXPECT_EQ(again.group_id(), second.group_id());
  ASSERT_EQ(again.conditioning_peers_size(), 1) << "a worker that serves nobody is left out";
  EXPECT_EQ(again.conditioning_peers(0).worker_id(), "first");
}

// Promise: Each group is trained once.
TEST_F(CoordinatorServiceTest, ExpiredLeaseIsCancelledFencedAndGivenToAnother) {
  WorkerStreams slow(server_->endpoint(), "slow");
  slow.Credit(0, 1);
  const v1::Lease lease = slow.Next().lease();
  EXPECT_THAT(slow.Renew(lease.lease_id()), ::testing::ElementsAre(lease.lease_id()));
  clock_.Advance(absl::Seconds(31));
  EXPECT_EQ(slow.Next().cancel().lease_id(), lease.lease_id());
  EXPECT_EQ(slow.Insert(slow.Result(lease, 0)).outcome(), v1::INSERT_OUTCOME_FENCED);
  WorkerStreams quick(server_->endpoint(), "quick");
  quick.Credit(0, 1);
  const v1::Lease again = quick.Next().lease();
  EXPECT_EQ(again.group_id(), lease.group_id());
  EXPECT_EQ(again.attempt(), 2u);
  EXPECT_EQ(quick.Insert(quick.Result(again, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
}

// Promise: A stalled worker delays nobody.
TEST_F(CoordinatorServiceTest, SilentWorkerLosesItsCreditWithItsLeasesUntilItSpeaks) {
  WorkerStreams silent(server_->endpoint(), "silent");
  silent.Credit(0, 3);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(silent.Next().has_lease());
  clock_.Advance(absl::Seconds(31));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(silent.Next().has_cancel());
  v1::StatusResponse status;
  coordinator_.FillStatus(status);
  EXPECT_EQ(status.groups_running(), 0u) << "its third credit would lose a group once more";
  EXPECT_EQ(status.leases_expired(), 2u);
  silent.Credit(0, 1);
  EXPECT_EQ(silent.Next().lease().attempt(), 2u);
}

// Promise: A stalled worker delays nobody.
TEST_F(CoordinatorServiceTest, IdleWorkerHelpsAStragglerAndTheLaterResultIsNobodysFailure) {
  WorkerStreams quick(server_->endpoint(), "quick");
  WorkerStreams slow(server_->endpoint(), "slow");
  quick.Credit(0, 1);
  EXPECT_EQ(quick.Insert(quick.Result(quick.Next().lease(), 0)).outcome(),
            v1::INSERT_OUTCOME_ACCEPTED);
  slow.Credit(0, 1);
  const v1::Lease late = slow.Next().lease();
  quick.Credit(0, 1);  // That group took no time: whatever is under way is a straggler.
  const v1::Lease helping = quick.Next().lease();
  EXPECT_EQ(helping.group_id(), late.group_id());
  EXPECT_EQ(helping.attempt(), 2u);
  EXPECT_EQ(quick.Insert(quick.Result(helping, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
  EXPECT_EQ(slow.Next().cancel().lease_id(), late.lease_id());
  EXPECT_EQ(slow.Insert(slow.Result(late, 0)).outcome(), v1::INSERT_OUTCOME_SUPERSEDED);
  slow.Fail(late.lease_id(), "cancelled");
  (void)slow.Renew(1);  // Comes back after the failure was taken.
  EXPECT_TRUE(assembler_.Take(LearnerStep(0), 2, absl::Seconds(10)).ok());
  const std::string text = telemetry::ScrapeText(registry_);
  for (const char* line : {"oxbow_learner_leases_total{event=\"speculated\"} 1",
                           "oxbow_learner_leases_total{event=\"superseded\"} 1",
                           "oxbow_learner_leases_total{event=\"failed\"} 0",
                           "oxbow_learner_results_total{outcome=\"superseded\"} 1"}) {
    EXPECT_THAT(text, ::testing::HasSubstr(line));
  }
}

TEST_F(CoordinatorServiceTest, MixedGroupWhoseHeadCannotBeReadGoesOnWithoutIt) {
  WorkerStreams worker(server_->endpoint(), "a");
  worker.Credit(0, 2);
  for (int i = 0; i < 2; ++i) {
    const v1::Lease lease = worker.Next().lease();
    EXPECT_EQ(worker.Insert(worker.Result(lease, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
  }
  StepPlan plan = PlanOf(1);
  plan.groups[0].kind = MixedGroup{{.entry = EntryId(9), .kept_steps = 2}};
  coordinator_.Plan(plan);
  coordinator_.published().Add(PolicyVersion(2), LearnerStep(1));
  for (int failure = 0; failure < 2; ++failure) {
    worker.Credit(2, 1);
    const v1::Lease lease = worker.Next().lease();
    EXPECT_EQ(lease.head().entry_id(), 9u);
    worker.Fail(lease.lease_id(), "replay buffer: connection refused");
    (void)worker.Renew(1);
    clock_.Advance(absl::Seconds(11));
  }
  worker.Credit(2, 1);
  const v1::Lease fresh = worker.Next().lease();
  EXPECT_EQ(fresh.group_id(), 2u);
  EXPECT_FALSE(fresh.has_head());
}

// Its sample is complete: workers make the others.
TEST_F(CoordinatorServiceTest, NobodySamplesAWholeHead) {
  WorkerStreams worker(server_->endpoint(), "a");
  worker.Credit(0, 2);
  for (int i = 0; i < 2; ++i) {
    const v1::Lease lease = worker.Next().lease();
    EXPECT_EQ(lease.group_size(), 2u);
    EXPECT_EQ(worker.Insert(worker.Result(lease, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
  }
  StepPlan plan = PlanOf(1);
  plan.groups[0].kind = WholeGroup{{.entry = EntryId(9), .kept_steps = 2}};
  coordinator_.Plan(plan);
  coordinator_.published().Add(PolicyVersion(2), LearnerStep(1));
  worker.Credit(2, 1);
  const v1::Lease lease = worker.Next().lease();
  EXPECT_EQ(lease.group_id(), 2u);
  EXPECT_EQ(lease.group_size(), 1u);
  EXPECT_FALSE(lease.has_head());
}

// Promise: Calls may be repeated.
TEST_F(CoordinatorServiceTest, AnotherEpochIsAborted) {
  auto stub = v1::Coordinator::NewStub(rpc::Connect(server_->endpoint()));
  const auto context = rpc::ContextWithDeadline(absl::Seconds(10));
  const auto stream = stub->Work(context.get());
  v1::WorkRequest request;
  request.set_epoch(kEpoch - 1);
  request.set_worker_id("old");
  request.mutable_hello();
  stream->Write(request);
  v1::WorkResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(CoordinatorServiceTest, DrainReachesWorkersAndTheRun) {
  WorkerStreams worker(server_->endpoint(), "a");
  worker.Credit(0, 0);
  auto stub = v1::Coordinator::NewStub(rpc::Connect(server_->endpoint()));
  const auto context = rpc::ContextWithDeadline(absl::Seconds(10));
  v1::DrainResponse response;
  EXPECT_TRUE(stub->Drain(context.get(), {}, &response).ok());
  EXPECT_TRUE(drained_);
  coordinator_.Drain();
  const v1::WorkResponse drain = worker.Next();
  EXPECT_TRUE(drain.has_drain());
  EXPECT_FALSE(drain.drain().run_complete());
  coordinator_.Drain(DrainReason::kRunComplete);
  EXPECT_TRUE(worker.Next().drain().run_complete());
}

// Promise: One bad worker ends no run.
TEST_F(CoordinatorServiceTest, FailuresBeyondTheLimitStopTheLearnerWithTheReason) {
  std::vector<std::unique_ptr<WorkerStreams>> workers;
  for (const char* name : {"c", "b", "a"}) {
    workers.push_back(std::make_unique<WorkerStreams>(server_->endpoint(), name));
  }
  const auto finish = [&](size_t i, uint64_t version) {
    workers[i]->Credit(version, 1);
    const v1::Lease lease = workers[i]->Next().lease();
    EXPECT_EQ(workers[i]->Insert(workers[i]->Result(lease, version)).outcome(),
              v1::INSERT_OUTCOME_ACCEPTED);
  };
  finish(0, 0);
  finish(1, 0);
  ASSERT_TRUE(assembler_.Take(LearnerStep(0), 2, absl::Seconds(10)).ok());
  coordinator_.TakePlanned(LearnerStep(0));
  coordinator_.Commit(LearnerStep(0));
  coordinator_.published().Add(PolicyVersion(1), LearnerStep(1));
  coordinator_.Plan(PlanOf(1));
  finish(2, 1);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(assembler_.stopped().ok()) << i;
    WorkerStreams& worker = *workers[(i + 1) % 3];
    worker.Credit(1, 1);
    worker.Fail(worker.Next().lease().lease_id(), "reward: no replica answers");
    (void)worker.Renew(1);  // Comes back after the failure was taken.
    clock_.Advance(absl::Seconds(11));
  }
  const auto groups = assembler_.Take(LearnerStep(1), 2, absl::Seconds(10));
  EXPECT_EQ(groups.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(
      std::string(groups.status().message()),
      ::testing::HasSubstr("group 3 failed 8 times, last on worker a: reward: no replica answers"));
}

TEST_F(CoordinatorServiceTest, ScrapeHasEveryCountFromTheStart) {
  const std::string text = telemetry::ScrapeText(registry_);
  for (const char* name : {"oxbow_learner_leases_total{event=\"expired\"} 0",
                           "oxbow_learner_results_total{outcome=\"fenced\"} 0",
                           "oxbow_learner_offers_total{outcome=\"rejected_lower\"} 0",
                           "oxbow_learner_weights_lag_versions 0",
                           "oxbow_learner_phase_seconds_total{phase=\"update\"} 0"}) {
    EXPECT_THAT(text, ::testing::HasSubstr(name));
  }
}

TEST_F(CoordinatorServiceTest, ScrapeHasTheNumbersOfTheLastStepByTheirKeys) {
  const auto step = [&](const std::map<std::string, double>& numbers) {
    metrics_.StepCommitted(1, numbers);
    std::vector<std::string> found;
    for (const absl::string_view line :
         absl::StrSplit(telemetry::ScrapeText(registry_), '\n', absl::SkipEmpty())) {
      if (absl::StartsWith(line, "oxbow_step")) found.emplace_back(line);
    }
    return found;
  };
  EXPECT_THAT(step({}), ::testing::IsEmpty());
  EXPECT_THAT(step({{"train/grad_norm", 2},
                    {"train/clip_frac_step_3", .5},
                    {"eval/reward_mean", .75},
                    {"eval/failed", 1}}),
              ::testing::UnorderedElementsAre("oxbow_step{key=\"train/grad_norm\"} 2",
                                              "oxbow_step{key=\"train/clip_frac_step_3\"} 0.5",
                                              "oxbow_step{key=\"eval/reward_mean\"} 0.75",
                                              "oxbow_step{key=\"eval/failed\"} 1"));
  EXPECT_THAT(step({{"train/grad_norm", 4}, {"train/clip_frac_step_4", 0}}),
              ::testing::UnorderedElementsAre("oxbow_step{key=\"train/grad_norm\"} 4",
                                              "oxbow_step{key=\"train/clip_frac_step_4\"} 0",
                                              "oxbow_step{key=\"eval/reward_mean\"} 0.75",
                                              "oxbow_step{key=\"eval/failed\"} 1"))
      << "numbers of an evaluation stay until the next";
  EXPECT_THAT(step({{"eval/reward_mean", .5}}),
              ::testing::UnorderedElementsAre("oxbow_step{key=\"eval/reward_mean\"} 0.5"));
}

}  // namespace
}  // namespace oxbow::learner
