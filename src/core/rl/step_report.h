// The metrics of a learner step that follow from its groups and its plan alone.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/rl/step_plan.h"

namespace oxbow::rl {

// train/reward_*, train/adv_*, train/samples_trained, train/staleness_* (learner steps; fresh
// samples) and train/replay_reward_change (mean of re-scored minus stored reward).
void AppendPlanMetrics(const TrainerOptions& options, PolicyVersion version,
                       const std::vector<Group>& groups, const StepPlan& plan,
                       std::map<std::string, double>& metrics);

// train/iw_{mean,min,max,ess,trunc_frac} of the weights computed. Nothing if there are none.
void AppendWeightMetrics(const std::vector<SequenceWeight>& weights,
                         std::map<std::string, double>& metrics);

}  // namespace oxbow::rl
