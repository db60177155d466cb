// SPDX-License-Identifier: Apache-2.0
// The plan of one learner step: which rows of which samples train, with which advantage and update.
//
// A row is one term of a sample's loss: a trained denoising step, or a pair of time and noise.
// The method decides which rows a sample has (method.h). Groups without variance and failed
// samples train nothing, unless they are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/rl/advantage.h"
#include "core/rl/experience.h"
#include "core/rl/options.h"

namespace oxbow::rl {

// A number of a sample that advantages are of.
using RewardValue = std::function<double(const Trajectory&)>;

// The rewards of a group's samples as the options value them: rare ones count more where the
// rewards of the group differ. Without that the reward says nothing of the group, and what is rare
// in it must not train it.
RewardValue ValueIn(const TrainerOptions& options, const Group& group);

struct WeightedValue {
  double weight = 1;
  RewardValue value;
};

// The single rewards of a sample, where every one has an advantage of its own (RewardMix); else
// none.
std::vector<WeightedValue> SingleValues(const TrainerOptions& options);

// Stored successes that train beside the fresh groups of a step: self-imitation that displaces
// nothing (docs/methods/reuse.md). Float64. Pure.
//
// A success of reward R of a prompt that succeeds at rate p counts
//
//   A = clip((R - p) / sqrt(p (1 - p) + e), 0, c)      e = .01
//
// what it would count in a large group of its prompt, never below 0: that a stored image is worse
// than what the policy makes by now is no reason to push it away. All A of a step are scaled by
//
//   min(1, w n / K)      n fresh samples whose group has a signal, K added ones, w the limit
//
// so that imitation never outweighs what the policy itself found out in the step: as the whole
// signal it collapses.
inline constexpr double kAddedAdvantageMax = 3;  // c
inline constexpr double kAddedWeightMax = 1;     // w

// Requires `limit` >= 0. `rate` is cut to [0, 1].
double ImitationAdvantage(double reward, double rate, double limit);

// Requires `weight_max` >= 0. 0 where nothing was added or no fresh group has a signal.
double ImitationScale(double weight_max, size_t fresh_with_signal, size_t added);

// Where a sample comes from.
enum class Origin { kFresh, kStale, kReplay };

struct PlannedRow {
  int step = 0;            // The denoising step, or the number of the pair.
  double sigma = 0;        // Noise level of the row's state.
  double weight = 1;       // The row's weight in its sample's loss.
  double baseline = 0;     // Taken from the sample's advantage; see ShareHeads in the .cc.
  bool trained = true;     // False: part of W alone.
  bool on_policy = false;  // Drawn by the policy as it is at the start of the step.
  bool in_weight = false;  // Part of W: a kept transition, or one that an older policy drew.
  bool needs_old = false;  // lp_old is to be computed; otherwise the behaviour's is taken.
  // lp_old comes with the row's first training pass: from its own velocity, while the policy is
  // that before the step, or from the velocity that was kept.
  bool old_in_pass = false;
  float log_prob_behaviour = 0;
  float log_prob_old = 0;     // The clip's centre.
  int64_t old_velocity = -1;  // Place in OldVelocities; -1: the row's policy has not moved.
};

struct PlannedTrajectory {
  size_t group = 0;
  size_t trajectory = 0;
  Origin origin = Origin::kFresh;
  double drawn = 0;   // Mean version of the policies that drew what it trains.
  double oldest = 0;  // The oldest of them.
  double advantage = 0;
  bool weighted = false;  // W is to be computed.
  double weight = 1;
  std::vector<PlannedRow> rows;
};

struct TrainingPlan {
  std::vector<GroupAdvantages> groups;
  std::vector<PlannedTrajectory> trajectories;  // Samples that train something.
  std::vector<std::vector<size_t>>
      updates;                  // Indices into `samples`, shuffled by (run seed, step, pass).
  int64_t samples_counted = 0;  // B of the denominator; see ZeroVariance. Added ones do not count.
  // Where groups are trees: the edges that the loss is the mean of. Else the loss divides by
  // samples and rows of a sample.
  std::optional<int64_t> edges_counted;
  double added_scale = 0;  // Factor of added samples' advantages; 0: none is trained.
};

// The rows that a sample trains, where its group has a signal; or none. Places are the caller's.
using SamplePlanner = std::function<PlannedTrajectory(const Group&, const Trajectory&)>;

// The groups that would train anything but the KL: those in which rewards differ. Pure.
std::vector<bool> HaveSignal(const TrainerOptions& options, const std::vector<Group>& groups);

// Pure.
TrainingPlan PlanTraining(const TrainerOptions& options, LearnerStep step,
                          const std::vector<Group>& groups, const SamplePlanner& plan_sample);

}  // namespace oxbow::rl
