#include "core/rl/training_plan.h"

#include "gtest/gtest.h"

namespace oxbow::rl {
namespace {

Group GroupOf(const std::vector<double>& rewards, const std::vector<double>& shares) {
  Group group{.id = GroupId(1)};
  for (size_t i = 0; i < rewards.size(); ++i) {
    Trajectory trajectory{.index = static_cast<uint32_t>(i)};
    trajectory.reward = rewards[i];
    trajectory.duplicate_share = shares[i];
    group.trajectories.push_back(std::move(trajectory));
  }
  return group;
}

std::vector<double> AdvantagesOf(double diversity, const Group& group) {
  TrainerOptions options;
  options.updates = 1;
  options.diversity_weight = diversity;
  const auto one_row = [](const Group&, const Trajectory&) {
    PlannedTrajectory planned;
    planned.rows.emplace_back();
    return planned;
  };
  return PlanTraining(options, LearnerStep(0), {group}, one_row).groups[0].advantages;
}

TEST(DiversityTest, RareFindsOfAGroupCountMore) {
  const Group group = GroupOf({1, 1, 1, 0}, {.75, .75, .25, .75});
  const auto advantages = AdvantagesOf(.5, group);
  EXPECT_GT(advantages[2], advantages[0]);
  EXPECT_EQ(advantages[0], advantages[1]);
  EXPECT_LT(advantages[3], 0);
}

TEST(DiversityTest, AFailureGainsNothingByBeingRare) {
  const auto advantages = AdvantagesOf(1, GroupOf({0, 0, 1, 1}, {.25, .75, .5, .5}));
  EXPECT_EQ(advantages[0], advantages[1]);
}

// All right and all alike: nothing to learn. All right and unevenly spread: the rare find is.
TEST(DiversityTest, AGroupOfSuccessesTrainsTheRareOneOnly) {
  for (const double advantage : AdvantagesOf(.5, GroupOf({1, 1, 1, 1}, {1, 1, 1, 1}))) {
    EXPECT_EQ(advantage, 0);
  }
  for (const double advantage : AdvantagesOf(.5, GroupOf({1, 1, 1, 1}, {.5, .5, .5, .5}))) {
    EXPECT_EQ(advantage, 0);
  }
  const auto uneven = AdvantagesOf(.5, GroupOf({1, 1, 1, 1}, {.75, .75, .75, .25}));
  EXPECT_GT(uneven[3], 0);
  EXPECT_LT(uneven[0], 0);
}

TEST(DiversityTest, WithoutWeightSharesChangeNothing) {
  EXPECT_EQ(AdvantagesOf(0, GroupOf({1, .5, 0, 1}, {.25, .5, .75, 1})),
            AdvantagesOf(0, GroupOf({1, .5, 0, 1}, {1, 1, 1, 1})));
}

// 23 failures and a replayed success: mean 1/24, std .199826.
Group WithReplayedSuccess() {
  Group group = GroupOf(std::vector<double>(24, 0), std::vector<double>(24, 1));
  group.trajectories[23].replayed = true;
  group.trajectories[23].stored_reward = 1;
  return group;
}

std::vector<double> ReplayAdvantages(bool stored, bool in_mean, const Group& group) {
  TrainerOptions options;
  options.stored_rewards = stored;
  options.replayed_in_mean = in_mean;
  const auto nothing = [](const Group&, const Trajectory&) { return PlannedTrajectory(); };
  return PlanTraining(options, LearnerStep(0), {group}, nothing).groups[0].advantages;
}

TEST(ReplayedRewardTest, CountsAsScoredAgainOrAsStored) {
  Group group = WithReplayedSuccess();
  EXPECT_EQ(ReplayAdvantages(false, true, group)[23], 0) << "its new image failed too";
  const auto stored = ReplayAdvantages(true, true, group);
  EXPECT_NEAR(stored[23], 4.79343, 1e-5);
  EXPECT_NEAR(stored[0], -.20841, 1e-5);
  group.trajectories[23].reward = 1;
  EXPECT_EQ(ReplayAdvantages(false, true, group), stored);
}

TEST(ReplayedRewardTest, OutsideTheMeanFailuresStayAtZero) {
  Group group = WithReplayedSuccess();
  group.trajectories[23].reward = 1;
  const auto advantages = ReplayAdvantages(false, false, group);
  EXPECT_EQ(advantages[0], 0);
  EXPECT_EQ(advantages[23], 5) << "1 / .1998 is limited";
  group.trajectories[23].replayed = false;
  EXPECT_NEAR(ReplayAdvantages(false, false, group)[23], 4.79343, 1e-5);
}

}  // namespace
}  // namespace oxbow::rl
