// SPDX-License-Identifier: Apache-2.0
// Training by the trees of a step: golden vectors of an implementation with nodes and children, and
// laws over random forests.
#include "core/rl/tree_training.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "core/rl/method.h"
#include "core/rl/step_metrics.h"
#include "tests/golden/golden.h"

namespace oxbow::rl {
namespace {

using nlohmann::json;
using ::oxbow::testing::BranchGolden;
using ::oxbow::testing::kGoldenTolerance;

// A row for each stochastic step.
PlannedTrajectory AllRows(const Group&, const Trajectory& trajectory) {
  PlannedTrajectory planned;
  for (size_t i = 0; i < trajectory.sde.size(); ++i) {
    if (trajectory.sde[i]) planned.rows.push_back({.step = static_cast<int>(i)});
  }
  return planned;
}

// Advantages that a plan trains with, by step and sample.
std::map<std::pair<int, size_t>, double> EdgesOf(const TrainingPlan& plan, size_t group = 0) {
  std::map<std::pair<int, size_t>, double> edges;
  for (const PlannedTrajectory& planned : plan.trajectories) {
    if (planned.group != group) continue;
    for (const PlannedRow& row : planned.rows) {
      edges[{row.step, planned.trajectory}] = planned.advantage - row.baseline;
    }
  }
  return edges;
}

BranchPruning PruningOf(const std::string& name) {
  if (name == "best") return BranchPruning::kBest;
  return name == "extremes" ? BranchPruning::kExtremes : BranchPruning::kNone;
}

TrainerOptions OptionsOf(const json& record) {
  TrainerOptions options;
  options.updates = 1;
  options.sampling.splits = {.steps = record["splits"].get<std::vector<int>>(),
                             .width = record["width"].get<uint32_t>()};
  options.branch = {
      .fusion = record["fusion"] == "mean" ? BranchFusion::kMean : BranchFusion::kSoftmax,
      .pruning = PruningOf(record["pruning"]),
      .kept = record["kept"],
      .pruned_steps = record["pruned"].get<std::vector<int>>()};
  options.advantage = {
      .ddof = record["ddof"], .epsilon = record["epsilon"], .clip = record["clip"]};
  return options;
}

Group GroupOf(const json& record) {
  Group group{.id = GroupId(1)};
  const auto steps = record["steps"].get<size_t>();
  for (size_t s = 0; s < record["rewards"].size(); ++s) {
    Trajectory trajectory{.index = static_cast<uint32_t>(s)};
    trajectory.reward = record["rewards"][s];
    trajectory.log_prob = record["log_probs"][s].get<std::vector<float>>();
    trajectory.sde.assign(steps, true);
    trajectory.sde.back() = false;
    group.trajectories.push_back(std::move(trajectory));
  }
  return group;
}

// The loss of the plan's edges at the record's log-ratios: the mean over edges.
double LossOf(const json& record, const TrainingPlan& plan) {
  const auto edges = EdgesOf(plan);
  double loss = 0;
  for (const json& edge : record["edges"]) {
    for (const size_t sample : edge["samples"].get<std::vector<size_t>>()) {
      const auto found = edges.find({edge["step"].get<int>(), sample});
      if (found == edges.end()) continue;
      const auto column = [](double value) {
        return at::full({1}, value, at::TensorOptions().dtype(at::kDouble));
      };
      const double range = record["ratio_clip"];
      loss += ClippedLoss(column(edge["log_ratio"]), column(0), column(found->second), column(1),
                          {.low = range, .high = range})
                  .item<double>();
    }
  }
  return loss / static_cast<double>(*plan.edges_counted);
}

// Promise: Trees share steps and change no bit.

TEST(TreeTrainingTest, GoldenEdgesAndLoss) {
  ASSERT_GE(BranchGolden()["branch_grpo"].size(), 24u);
  for (const json& record : BranchGolden()["branch_grpo"]) {
    SCOPED_TRACE(record["pruning"].get<std::string>() + " of " + record["fusion"].dump());
    const TrainingPlan plan =
        PlanTraining(OptionsOf(record), LearnerStep(0), {GroupOf(record)}, AllRows);
    const auto edges = EdgesOf(plan);
    size_t trained = 0;
    for (const json& edge : record["edges"]) {
      std::vector<double> found;
      for (const size_t sample : edge["samples"].get<std::vector<size_t>>()) {
        const auto at_sample = edges.find({edge["step"].get<int>(), sample});
        if (at_sample != edges.end()) found.push_back(at_sample->second);
      }
      if (found.empty()) {  // The only node of its step: there is nothing to compare it with.
        EXPECT_EQ(edge["advantage"].get<double>(), 0);
        continue;
      }
      ASSERT_EQ(found.size(), 1u) << "an edge is trained once";
      EXPECT_NEAR(found[0], edge["advantage"].get<double>(), kGoldenTolerance);
      ++trained;
    }
    EXPECT_EQ(edges.size(), trained) << "and no other edge";
    EXPECT_EQ(*plan.edges_counted, static_cast<int64_t>(record["edges"].size()));
    EXPECT_NEAR(LossOf(record, plan), record["loss"].get<double>(), kGoldenTolerance);
    EXPECT_EQ(flow::NodesOfGroup(OptionsOf(record).sampling.splits,
                                 static_cast<int64_t>(record["rewards"].size()), record["steps"]),
              record["rows_forward"].get<int64_t>());
  }
}

// A random step of two groups of trees, with rewards that failed.
struct Forest {
  TrainerOptions options;
  std::vector<Group> groups;
};

Forest RandomForest(uint32_t seed) {
  std::mt19937 random(seed);
  Forest forest;
  const int steps = 4 + static_cast<int>(random() % 4);
  flow::SplitTree& tree = forest.options.sampling.splits;
  tree.width = 2 + random() % 2;
  for (int i = 0; i + 1 < steps && tree.steps.size() < 3; ++i) {
    if (random() % 2 == 0) tree.steps.push_back(i);
  }
  if (tree.steps.empty()) tree.steps = {0};
  forest.options.branch.fusion = random() % 2 == 0 ? BranchFusion::kMean : BranchFusion::kSoftmax;
  const uint32_t size = tree.Leaves() * (1 + random() % 2);
  for (uint64_t g = 0; g < 2; ++g) {
    Group group{.id = GroupId(g)};
    for (uint32_t s = 0; s < size; ++s) {
      Trajectory trajectory{.index = s};
      trajectory.reward = static_cast<double>(random() % 1000) / 1000;
      trajectory.reward_failed = random() % 5 == 0;
      trajectory.sde.assign(static_cast<size_t>(steps), true);
      for (int i = 0; i < steps; ++i) {  // Equal where samples share an edge.
        std::mt19937 edge(seed * 7919 + tree.FirstLeaf(s, i) * 31 + static_cast<uint32_t>(i));
        trajectory.log_prob.push_back(static_cast<float>(edge() % 1000) / 1000);
      }
      group.trajectories.push_back(std::move(trajectory));
    }
    forest.groups.push_back(std::move(group));
  }
  return forest;
}

TEST(TreeTrainingTest, EveryEdgeBelowWhichASampleIsScoredIsTrainedOnce) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Forest forest = RandomForest(seed);
    forest.options.zero_variance = ZeroVariance::kUnmasked;
    const flow::SplitTree& tree = forest.options.sampling.splits;
    const TrainingPlan plan = PlanTraining(forest.options, LearnerStep(0), forest.groups, AllRows);
    std::multiset<std::pair<int, uint32_t>> trained;
    std::set<std::pair<int, uint32_t>> wanted;
    for (const auto& [place, advantage] : EdgesOf(plan)) {
      trained.insert(
          {place.first, tree.FirstLeaf(static_cast<uint32_t>(place.second), place.first)});
    }
    for (const Trajectory& trajectory : forest.groups[0].trajectories) {
      if (trajectory.reward_failed) continue;
      for (size_t i = 0; i < trajectory.sde.size(); ++i) {
        const int step = static_cast<int>(i);
        wanted.insert({step, tree.FirstLeaf(trajectory.index, step)});
      }
    }
    EXPECT_EQ(std::vector(trained.begin(), trained.end()),
              std::vector(wanted.begin(), wanted.end()));
  }
}

// Without a divisor the advantages of a step sum to nothing over the nodes of a group, and each is
// the mean over the node's leaves minus that mean over nodes.
TEST(TreeTrainingTest, AnAdvantageIsTheMeanOfTheLeavesAgainstTheNodesOfItsStep) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Forest forest = RandomForest(seed);
    forest.options.branch.fusion = BranchFusion::kMean;
    forest.options.advantage.std = AdvantageStd::kNone;
    const flow::SplitTree& tree = forest.options.sampling.splits;
    const TrainingPlan plan = PlanTraining(forest.options, LearnerStep(0), forest.groups, AllRows);
    std::map<int, double> sums;
    for (const auto& [place, advantage] : EdgesOf(plan)) {
      const int step = place.first;
      sums[step] += advantage;
      std::map<uint32_t, std::pair<double, double>> nodes;  // Sum and count of leaves.
      for (const Trajectory& leaf : forest.groups[0].trajectories) {
        if (leaf.reward_failed) continue;
        auto& [sum, count] = nodes[tree.FirstLeaf(leaf.index, step)];
        sum += leaf.reward;
        ++count;
      }
      double mean = 0;
      for (const auto& [first, node] : nodes) {
        mean += node.first / node.second / static_cast<double>(nodes.size());
      }
      const auto& [sum, count] =
          nodes.at(tree.FirstLeaf(static_cast<uint32_t>(place.second), step));
      EXPECT_NEAR(advantage, sum / count - mean, 1e-12);
    }
    for (const auto& [step, sum] : sums) EXPECT_NEAR(sum, 0, 1e-12) << "step " << step;
  }
}

// Rewards move together: an affine change of all rewards changes no advantage, whatever the fusion.
TEST(TreeTrainingTest, AdvantagesDoNotDependOnTheScaleOfRewards) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Forest forest = RandomForest(seed);
    forest.options.advantage.epsilon = 1e-300;
    const auto before =
        EdgesOf(PlanTraining(forest.options, LearnerStep(0), forest.groups, AllRows));
    for (Group& group : forest.groups) {
      for (Trajectory& trajectory : group.trajectories)
        trajectory.reward = 3 * trajectory.reward - 2;
    }
    const auto after =
        EdgesOf(PlanTraining(forest.options, LearnerStep(0), forest.groups, AllRows));
    ASSERT_EQ(after.size(), before.size());
    for (const auto& [place, advantage] : after) EXPECT_NEAR(advantage, before.at(place), 1e-9);
  }
}

TEST(TreeTrainingTest, SeveralRewardsAreFusedOneByOne) {
  Forest forest = RandomForest(3);
  for (Group& group : forest.groups) {
    for (Trajectory& trajectory : group.trajectories) {
      trajectory.rewards = {{"a", trajectory.reward}, {"b", 1 - trajectory.reward}};
    }
  }
  const auto alone = EdgesOf(PlanTraining(forest.options, LearnerStep(0), forest.groups, AllRows));
  forest.options.reward_mix = RewardMix::kEach;
  forest.options.reward_weights = {{"a", 2}, {"b", 1}};
  const auto mixed = EdgesOf(PlanTraining(forest.options, LearnerStep(0), forest.groups, AllRows));
  ASSERT_EQ(mixed.size(), alone.size());
  for (const auto& [place, advantage] : mixed) {
    EXPECT_NEAR(advantage, alone.at(place), 1e-9) << "2 A - A";
  }
}

// Where all rewards of a group are equal nothing trains; whether its edges count is the rule's.
TEST(TreeTrainingTest, AGroupWithoutASignalCountsAsItsRuleSays) {
  Forest forest = RandomForest(5);
  for (Trajectory& leaf : forest.groups[1].trajectories) leaf.reward = 0.5;
  const auto edges = [&](ZeroVariance rule) {
    forest.options.zero_variance = rule;
    const TrainingPlan plan = PlanTraining(forest.options, LearnerStep(0), forest.groups, AllRows);
    return std::pair(*plan.edges_counted, EdgesOf(plan, 1).size());
  };
  const auto [all, none] = edges(ZeroVariance::kMeanOverAll);
  const auto [kept, none_either] = edges(ZeroVariance::kMeanOverKept);
  const auto [unmasked, trained] = edges(ZeroVariance::kUnmasked);
  EXPECT_EQ(none, 0u);
  EXPECT_EQ(none_either, 0u);
  EXPECT_GT(trained, 0u);
  EXPECT_EQ(all, unmasked);
  EXPECT_LT(kept, all);
}

// Before its first split a tree has one node a step: nothing to compare. Steps 0 to 3, a split
// at 2.
TEST(TreeTrainingTest, AStepWithOneNodeTrainsNothingAndCountsAsTheRuleSays) {
  Group group{.id = GroupId(1)};
  for (uint32_t s = 0; s < 4; ++s) {
    Trajectory leaf{.index = s};
    leaf.reward = s;
    leaf.sde = {true, true, true, true};
    group.trajectories.push_back(std::move(leaf));
  }
  TrainerOptions options;
  options.sampling.splits = {.steps = {2}, .width = 4};
  for (const auto& [rule, edges] :
       {std::pair(ZeroVariance::kMeanOverAll, 10), std::pair(ZeroVariance::kMeanOverKept, 8)}) {
    options.zero_variance = rule;
    const TrainingPlan plan = PlanTraining(options, LearnerStep(0), {group}, AllRows);
    EXPECT_EQ(EdgesOf(plan).size(), 8u);
    EXPECT_EQ(*plan.edges_counted, edges);
  }
}

TEST(TreeTrainingTest, BestKeepsOneChildOfEveryNodeThatTheLastSplitDivides) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Forest forest = RandomForest(seed);
    const flow::SplitTree& tree = forest.options.sampling.splits;
    std::vector<std::optional<double>> values;
    for (const Trajectory& leaf : forest.groups[0].trajectories) {
      values.push_back(leaf.reward_failed ? std::nullopt : std::optional<double>(leaf.reward));
    }
    const std::vector<bool> kept =
        KeptLeaves({.pruning = BranchPruning::kBest}, tree, forest.groups[0], values);
    for (size_t first = 0; first < kept.size(); first += tree.width) {
      double best = -1;
      double chosen = -1;
      for (size_t s = first; s < first + tree.width; ++s) {
        if (values[s].has_value()) best = std::max(best, *values[s]);
        if (kept[s]) chosen = chosen < 0 ? *values[s] : 2;
      }
      EXPECT_EQ(chosen, best) << "children " << first << " on";
    }
  }
}

TEST(TreeTrainingTest, PrunedStepsMoveToTheLastSplitAndStayThere) {
  const flow::SplitTree tree{.steps = {0, 2}, .width = 2};
  const BranchOptions branch{.pruned_steps = {4, 5}, .pruned_hold = 10};
  const std::vector<int> all = {0, 1, 2, 3, 4, 5};
  EXPECT_EQ(PrunedSteps(branch, tree, all, LearnerStep(9)), (std::vector<int>{4, 5}));
  EXPECT_EQ(PrunedSteps(branch, tree, all, LearnerStep(10)), (std::vector<int>{3, 4}));
  EXPECT_EQ(PrunedSteps(branch, tree, all, LearnerStep(1000)), (std::vector<int>{2, 3}));
  EXPECT_EQ(PrunedSteps({.pruned_steps = {4, 5}}, tree, all, LearnerStep(1000)),
            (std::vector<int>{4, 5}));
}

// Four nodes after each of the steps 2, 7 and 8, of which one is pruned at any time.
TEST(TreeTrainingTest, PrunedStepsMovePastTheStepsWithoutNoise) {
  Group group{.id = GroupId(1)};
  for (uint32_t s = 0; s < 4; ++s) {
    Trajectory leaf{.index = s};
    leaf.reward = s;
    leaf.sde = {true, true, true, false, false, false, false, true, true, false};
    group.trajectories.push_back(std::move(leaf));
  }
  TrainerOptions options;
  options.sampling.splits = {.steps = {0, 2}, .width = 2};
  options.branch = {.pruned_steps = {8}, .pruned_hold = 30};
  for (const auto& [step, pruned] : {std::pair(29, 8), std::pair(30, 7), std::pair(60, 2),
                                     std::pair(90, 2), std::pair(1000, 2)}) {
    std::set<int> trained;
    for (const auto& [place, _] :
         EdgesOf(PlanTraining(options, LearnerStep(static_cast<uint64_t>(step)), {group}, AllRows)))
      trained.insert(place.first);
    std::set<int> wanted = {0, 1, 2, 7, 8};
    wanted.erase(pruned);
    EXPECT_EQ(trained, wanted) << "learner step " << step;
  }
}

// The metrics say what rows train with, not what the leaves deserve.
TEST(TreeTrainingTest, AdvantageMetricsAreOfTheEdgesThatTrain) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Forest forest = RandomForest(seed);
    const TrainingPlan plan = PlanTraining(forest.options, LearnerStep(0), forest.groups, AllRows);
    std::vector<double> trained;
    double size = 0;
    for (size_t g = 0; g < forest.groups.size(); ++g) {
      for (const auto& [place, advantage] : EdgesOf(plan, g)) {
        trained.push_back(advantage);
        size += std::abs(advantage);
      }
    }
    if (trained.empty()) continue;
    std::map<std::string, double> metrics;
    AppendPlanMetrics(forest.options, PolicyVersion(0), forest.groups, plan, metrics);
    const auto [least, most] = std::minmax_element(trained.begin(), trained.end());
    EXPECT_EQ(metrics.at("train/adv_min"), *least);
    EXPECT_EQ(metrics.at("train/adv_max"), *most);
    EXPECT_NEAR(metrics.at("train/adv_abs_mean"), size / static_cast<double>(trained.size()),
                1e-12);
  }
}

TEST(TreeTrainingTest, WithoutSplitsPlansAreWhatTheyWere) {
  Forest forest = RandomForest(2);
  forest.options.sampling.splits = {};
  const TrainingPlan plan = PlanTraining(forest.options, LearnerStep(0), forest.groups, AllRows);
  EXPECT_FALSE(plan.edges_counted.has_value());
  for (const PlannedTrajectory& planned : plan.trajectories) {
    EXPECT_EQ(planned.rows.size(), forest.groups[0].trajectories[0].sde.size());
  }
}

}  // namespace
}  // namespace oxbow::rl
