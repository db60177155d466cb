// SPDX-License-Identifier: Apache-2.0
// The fate of a worker's results: which are refused, and what the refusal says.
#include <functional>
#include <limits>

#include "tests/testing/coordinator_fixture.h"

namespace oxbow::learner {
namespace {

TEST_F(CoordinatorServiceTest, MalformedResultsAreInvalidWithTheReasonAndTheStreamGoesOn) {
  WorkerStreams worker(server_->endpoint(), "a");
  const auto refused = [&](const std::function<void(v1::Group&)>& spoil, float value = 0) {
    worker.Credit(0, 1);
    const v1::Lease lease = worker.Next().lease();
    v1::Group group = worker.Result(lease, 0);
    spoil(group);
    const auto ack = worker.Insert(group, value);
    EXPECT_EQ(ack.outcome(), v1::INSERT_OUTCOME_INVALID);
    clock_.Advance(absl::Minutes(2));  // Over the back-off, and the rest of a worker that fails.
    return ack.error();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(
      refused([](v1::Group& g) { g.mutable_trajectories(1)->mutable_latents()->set_shape(2, 9); }),
      HasSubstr("trajectory 1: latents have shape [4, 1, 9, 2]"));
  EXPECT_THAT(refused([](v1::Group& g) { g.mutable_trajectories(0)->set_schedule_id(1); }),
              HasSubstr("another schedule"));
  EXPECT_THAT(refused([](v1::Group& g) {
                g.mutable_trajectories(0)->set_reward(std::numeric_limits<double>::quiet_NaN());
              }),
              HasSubstr("reward is not finite"));
  EXPECT_THAT(refused([](v1::Group&) {}, std::numeric_limits<float>::infinity()),
              HasSubstr("latents are not finite"));
  EXPECT_THAT(refused([](v1::Group& g) { g.mutable_trajectories(0)->set_sample(1); }),
              HasSubstr("sample index repeats"));
  worker.Credit(0, 1);
  EXPECT_EQ(worker.Insert(worker.Result(worker.Next().lease(), 0)).outcome(),
            v1::INSERT_OUTCOME_ACCEPTED);
}

// The window of a group is in its lease, and what comes back must have it.
TEST_F(CoordinatorServiceTest, AGroupIsSampledWithTheWindowItWasPlannedWith) {
  WorkerStreams worker(server_->endpoint(), "a");
  worker.Credit(0, 2);
  for (int i = 0; i < 2; ++i) {
    const v1::Lease lease = worker.Next().lease();
    EXPECT_THAT(lease.sde_steps(), ::testing::IsEmpty()) << "all that may be";
    EXPECT_EQ(worker.Insert(worker.Result(lease, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
  }
  StepPlan plan = PlanOf(1);
  for (PlannedGroup& group : plan.groups) group.sde = {false, true, false};
  coordinator_.Plan(plan);
  coordinator_.published().Add(PolicyVersion(2), LearnerStep(1));
  const auto answer = [&](const std::function<void(v1::Trajectory&)>& change) {
    worker.Credit(2, 1);
    const v1::Lease lease = worker.Next().lease();
    EXPECT_THAT(lease.sde_steps(), ::testing::ElementsAre(1));
    v1::Group group = worker.Result(lease, 2);
    for (v1::Trajectory& trajectory : *group.mutable_trajectories()) {
      trajectory.set_sde(0, false);
      change(trajectory);
    }
    const auto ack = worker.Insert(group);
    clock_.Advance(absl::Minutes(2));  // Over the back-off, and the rest of a worker that fails.
    return std::string(ack.error());
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(answer([](v1::Trajectory& t) { t.set_sde(0, true); }),
              HasSubstr("trajectory 0: step 0 is stochastic, other than its lease asked for"));
  EXPECT_THAT(answer([](v1::Trajectory& t) { t.set_sde(1, false); }),
              HasSubstr("step 1 is not stochastic"));
  EXPECT_THAT(answer([](v1::Trajectory& t) { t.set_sde(2, true); }),
              HasSubstr("step 2 is stochastic, other than in the run"));
  EXPECT_THAT(answer([](v1::Trajectory& t) {
                t.set_first_latent(2);
                t.mutable_latents()->set_shape(0, 2);
              }),
              HasSubstr("holds x_2 to x_3, training needs x_1 to x_2"));
  EXPECT_EQ(answer([](v1::Trajectory&) {}), "");
}

// Promise: Calls may be repeated.
TEST_F(CoordinatorServiceTest, AResultOfAnotherEpochIsFenced) {
  WorkerStreams worker(server_->endpoint(), "a");
  worker.Credit(0, 1);
  const v1::Lease lease = worker.Next().lease();
  v1::Group old = worker.Result(lease, 0);
  old.set_epoch(kEpoch - 1);
  EXPECT_EQ(worker.Insert(old).outcome(), v1::INSERT_OUTCOME_FENCED);
  EXPECT_EQ(worker.Insert(worker.Result(lease, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
}

v1::StatusResponse Asked(const std::string& endpoint) {
  v1::StatusResponse status;
  EXPECT_TRUE(v1::Coordinator::NewStub(rpc::Connect(endpoint))
                  ->Status(rpc::ContextWithDeadline(absl::Seconds(20)).get(), {}, &status)
                  .ok());
  return status;
}

// Noise is a function of the group: what a reward server cannot score, it cannot score again.
// Promise: An image that cannot be scored does not stop a run.
TEST_F(CoordinatorServiceTest, AGroupThatCannotBeScoredDropsItsSamplesInTheEnd) {
  PlannedGroup mixed{.id = GroupId(2), .step = LearnerStep(1)};
  mixed.prompt.set_id(7);
  mixed.prompt.set_text("text 7");
  mixed.kind = MixedGroup{{.entry = EntryId(5)}};
  StepPlan plan = PlanOf(1);
  plan.groups[0] = mixed;
  WorkerStreams worker(server_->endpoint(), "a");
  worker.Credit(0, 2);
  for (int i = 0; i < 2; ++i) worker.Insert(worker.Result(worker.Next().lease(), 0));
  coordinator_.published().Add(PolicyVersion(2), LearnerStep(1));
  coordinator_.Plan(plan);
  for (uint32_t failure = 0; failure < Quarantine::kFailuresMax; ++failure) {
    worker.Credit(2, 1);
    const v1::Lease lease = worker.Next().lease();
    ASSERT_EQ(lease.group_id(), 2);
    EXPECT_FALSE(lease.drops_unscored());
    worker.Fail(lease.lease_id(), "reward of sample 1: CUDA out of memory", /*unscored=*/true);
    worker.Renew(0);                   // Its answer says that the failure was read.
    clock_.Advance(absl::Minutes(2));  // Over the back-off, and the rest of a worker that fails.
  }
  EXPECT_EQ(Asked(server_->endpoint()).last_failure().count(), Quarantine::kFailuresMax);
  worker.Credit(2, 1);
  const v1::Lease lease = worker.Next().lease();
  ASSERT_EQ(lease.group_id(), 2);
  EXPECT_TRUE(lease.drops_unscored());
  EXPECT_TRUE(lease.has_head()) << "the head could be read";
  v1::StatusResponse status = Asked(server_->endpoint());
  ASSERT_EQ(status.quarantined_size(), 1);
  EXPECT_EQ(status.quarantined(0).text(), "text 7");
  EXPECT_THAT(status.quarantined(0).reason(), ::testing::HasSubstr("CUDA out of memory"));
  EXPECT_EQ(coordinator_.events().unscored_reason(), "reward of sample 1: CUDA out of memory");
  v1::Group group = worker.Result(lease, 2);
  group.mutable_trajectories(1)->set_reward_failed(true);
  EXPECT_EQ(worker.Insert(group).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
  status = Asked(server_->endpoint());
  EXPECT_EQ(status.samples_unscored(), 1);
  EXPECT_EQ(status.prompts_quarantined(), 1);
}

// Promise: A run waits for its reward servers.
TEST_F(CoordinatorServiceTest, AWorkerThatWaitsForARewardServerSaysSoAndKeepsItsLease) {
  WorkerStreams worker(server_->endpoint(), "a");
  worker.Credit(0, 1);
  const uint64_t lease = worker.Next().lease().lease_id();
  progress_.Enter("wait");
  for (int i = 0; i < 20; ++i) {
    clock_.Advance(absl::Seconds(20));
    EXPECT_THAT(worker.Renew(lease, "reward server x: gone"), ::testing::ElementsAre(lease));
  }
  v1::StatusResponse status = Asked(server_->endpoint());
  EXPECT_EQ(status.workers(0).waiting_for(), "reward server x: gone");
  EXPECT_EQ(status.phase(), kAwaitsRewards);
  EXPECT_TRUE(coordinator_.awaits_rewards());
  EXPECT_FALSE(status.has_last_failure()) << "an absence is no failure of a group";
  worker.Renew(lease);
  status = Asked(server_->endpoint());
  EXPECT_EQ(status.phase(), kAwaitsRollouts);
  EXPECT_FALSE(coordinator_.awaits_rewards());
}

}  // namespace
}  // namespace oxbow::learner
