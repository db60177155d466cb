// What becomes of a worker's results: which are refused, and what the refusal says.
#include <functional>
#include <limits>

#include "services/learner/coordinator/coordinator_fixture.h"

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
    clock_.Advance(absl::Seconds(20));  // Over the back-off.
    return ack.error();
  };
  using testing::HasSubstr;
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
    EXPECT_THAT(lease.sde_steps(), testing::IsEmpty()) << "all that may be";
    EXPECT_EQ(worker.Insert(worker.Result(lease, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
  }
  StepPlan plan = PlanOf(1);
  for (PlannedGroup& group : plan.groups) group.sde = {false, true, false};
  coordinator_.Plan(plan);
  coordinator_.Published(PolicyVersion(2), LearnerStep(1));
  const auto answer = [&](const std::function<void(v1::Trajectory&)>& change) {
    worker.Credit(2, 1);
    const v1::Lease lease = worker.Next().lease();
    EXPECT_THAT(lease.sde_steps(), testing::ElementsAre(1));
    v1::Group group = worker.Result(lease, 2);
    for (v1::Trajectory& trajectory : *group.mutable_trajectories()) {
      trajectory.set_sde(0, false);
      change(trajectory);
    }
    const auto ack = worker.Insert(group);
    clock_.Advance(absl::Seconds(20));  // Over the back-off.
    return std::string(ack.error());
  };
  using testing::HasSubstr;
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

TEST_F(CoordinatorServiceTest, AResultOfAnotherEpochIsFenced) {
  WorkerStreams worker(server_->endpoint(), "a");
  worker.Credit(0, 1);
  const v1::Lease lease = worker.Next().lease();
  v1::Group old = worker.Result(lease, 0);
  old.set_epoch(kEpoch - 1);
  EXPECT_EQ(worker.Insert(old).outcome(), v1::INSERT_OUTCOME_FENCED);
  EXPECT_EQ(worker.Insert(worker.Result(lease, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
}

}  // namespace
}  // namespace oxbow::learner
