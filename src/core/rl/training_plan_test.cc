// SPDX-License-Identifier: Apache-2.0
#include "core/rl/training_plan.h"

#include <cmath>

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

// A reward that gives every picture .5 says nothing, however the pictures differ.
// Promise: A reward that says nothing trains nothing. A group whose scored rewards are all equal
// trains no sample, whatever makes its pictures rare, and counts as one without a signal: it is
// replaced, and no success of it is kept. The verdict names a reward that gives every picture the
// same number.
TEST(DiversityTest, WhereRewardsAreEqualWhatIsRareTrainsNothing) {
  Group partly_scored = GroupOf({.5, .5, 9, .5}, {.75, .75, .75, .25});
  partly_scored.trajectories[2].reward_failed = true;
  for (const Group& group : {GroupOf({1, 1, 1, 1}, {.5, .5, .5, .5}),
                             GroupOf({.5, .5, .5, .5}, {.75, .75, .75, .25}), partly_scored}) {
    for (const double advantage : AdvantagesOf(.5, group)) EXPECT_EQ(advantage, 0);
    TrainerOptions options;
    options.diversity_weight = .5;
    EXPECT_EQ(HaveSignal(options, {group}), std::vector<bool>{false});
  }
}

// Where stored rewards count, they are what must differ.
// Promise: A reward that says nothing trains nothing.
TEST(DiversityTest, ARewardThatCountsAsStoredIsASignal) {
  Group group = GroupOf({.5, .5, .5}, {.75, .75, .25});
  group.trajectories[0].replayed = true;
  group.trajectories[0].stored_reward = 1;
  TrainerOptions options;
  options.diversity_weight = .5;
  EXPECT_EQ(HaveSignal(options, {group}), std::vector<bool>{false});
  options.stored_rewards = true;
  EXPECT_EQ(HaveSignal(options, {group}), std::vector<bool>{true});
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

Group Added(double reward, double rate) {
  Group group = GroupOf({reward}, {1});
  group.trajectories[0].replayed = true;
  group.trajectories[0].stored_reward = reward;
  group.success_rate = rate;
  return group;
}

PlannedTrajectory TwoRows(const Group&, const Trajectory&) {
  PlannedTrajectory planned;
  planned.rows = {{.step = 0}, {.step = 3}};
  return planned;
}

// Group and advantage of each trajectory that is trained.
std::vector<std::pair<size_t, double>> Trained(const TrainingPlan& plan) {
  std::vector<std::pair<size_t, double>> trained;
  for (const PlannedTrajectory& planned : plan.trajectories) {
    trained.emplace_back(planned.group, planned.advantage);
  }
  return trained;
}

// Promise: Reuse beyond a drawn head keeps its bounds.

TEST(AddedTest, TheGroupsOfTheStepAreTrainedAsIfNothingStoodBesideThem) {
  const std::vector<Group> fresh = {GroupOf({1, 0, 0, 0}, {1, 1, 1, 1}),
                                    GroupOf({0, 0, 0, 0}, {1, 1, 1, 1})};
  for (const AdvantageStd std : {AdvantageStd::kGroup, AdvantageStd::kGlobal}) {
    TrainerOptions options;
    options.advantage.std = std;
    const TrainingPlan alone = PlanTraining(options, LearnerStep(0), fresh, TwoRows);
    const TrainingPlan both = PlanTraining(
        options, LearnerStep(0), {fresh[0], Added(1, 0.5), fresh[1], Added(1, 0)}, TwoRows);
    EXPECT_EQ(both.groups[0].advantages, alone.groups[0].advantages);
    EXPECT_EQ(both.samples_counted, alone.samples_counted) << "they raise no denominator";
    EXPECT_EQ(both.added_scale, 1);
    const auto trained = Trained(both);
    ASSERT_EQ(trained.size(), 6u);
    EXPECT_EQ(trained[4].first, 1u);
    EXPECT_NEAR(trained[4].second, 0.98058067569092, 1e-12);
    EXPECT_EQ(trained[5].second, 3) << "at its limit";
  }
}

TEST(AddedTest, TheirWeightsAreLimitedByTheFreshSamplesWithASignal) {
  TrainerOptions options;
  const Group live = GroupOf({1, 0}, {1, 1});
  std::vector<Group> groups = {live, Added(1, 0.5), Added(1, 0.5), Added(1, 0.5), Added(1, 0.5)};
  const TrainingPlan plan = PlanTraining(options, LearnerStep(0), groups, TwoRows);
  EXPECT_EQ(plan.added_scale, 0.5) << "2 / 4";
  EXPECT_NEAR(Trained(plan)[2].second, 0.5 * 0.98058067569092, 1e-12);
  groups[0] = GroupOf({0, 0}, {1, 1});
  for (const ZeroVariance rule : {ZeroVariance::kMeanOverAll, ZeroVariance::kUnmasked}) {
    options.zero_variance = rule;
    for (const auto& [group, advantage] :
         Trained(PlanTraining(options, LearnerStep(0), groups, TwoRows))) {
      EXPECT_EQ(group, 0u) << "imitation is never the whole signal";
    }
  }
}

TEST(AddedTest, ASolvedPromptAndAnEmptyPlaceTrainNothing) {
  Group empty = GroupOf({}, {});
  empty.success_rate = 1;
  const TrainingPlan plan =
      PlanTraining({}, LearnerStep(0), {GroupOf({1, 0}, {1, 1}), Added(1, 1), empty}, TwoRows);
  EXPECT_EQ(Trained(plan).size(), 2u);
  EXPECT_EQ(plan.added_scale, 0);
}

// A bonus that raises a rare picture's value within its group is no part of a rate of success.
TEST(AddedTest, RewardsAreSharesOfTheFullOneWithoutDiversity) {
  TrainerOptions options;
  options.full_reward = 2;
  options.diversity_weight = 0.5;
  const Group live = GroupOf({2, 0}, {1, 1});
  EXPECT_EQ(Trained(PlanTraining(options, LearnerStep(0), {live, Added(2, 1)}, TwoRows)).size(), 2u)
      << "a solved prompt";
  const auto half = Trained(PlanTraining(options, LearnerStep(0), {live, Added(1, 0.25)}, TwoRows));
  EXPECT_NEAR(half[2].second, 0.25 / std::sqrt(0.25 * 0.75 + 0.01), 1e-12);
}

// Rewards 1, 0, 0, 0 and branches 1, 1, 0 of a head that ends at step 2: mean 3/7.
// Promise: Reuse beyond a drawn head keeps its bounds.
TEST(BranchesTest, AHeadIsJudgedOnceAndTailsAgainstTheirSiblings) {
  Group group = GroupOf({1, 0, 0, 0, 1, 1, 0}, std::vector<double>(7, 1));
  for (size_t s = 4; s < 7; ++s) {
    group.trajectories[s].replayed = true;
    group.trajectories[s].kept_steps = 2;
  }
  TrainerOptions options;
  options.advantage.std = AdvantageStd::kNone;
  const TrainingPlan plan = PlanTraining(options, LearnerStep(0), {group}, TwoRows);
  const auto weighed = [&](size_t s, size_t row) {
    const PlannedTrajectory& planned = plan.trajectories[s];
    return planned.rows[row].weight * (planned.advantage - planned.rows[row].baseline);
  };
  double head = 0;
  double tails = 0;
  for (size_t s = 4; s < 7; ++s) {
    head += weighed(s, 0);
    tails += weighed(s, 1);
  }
  EXPECT_NEAR(head, 2. / 3 - 3. / 7, 1e-12) << "the branches' mean against the group's";
  EXPECT_NEAR(tails, 0, 1e-12);
  EXPECT_NEAR(weighed(4, 1), 1. / 3, 1e-12);
  EXPECT_NEAR(weighed(6, 1), -2. / 3, 1e-12);
  EXPECT_NEAR(weighed(0, 1), 4. / 7, 1e-12) << "fresh samples are as they were";
}

}  // namespace
}  // namespace oxbow::rl
