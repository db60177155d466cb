// SPDX-License-Identifier: Apache-2.0
#include "cli/model/measured_task.h"

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "run/rewards.h"

namespace oxbow::cli {

const tasks::SyntheticTask* MeasuredTask(const v1::RewardConfig& reward,
                                         const std::string& prompt) {
  const tasks::SyntheticTask* const task = tasks::TaskOfPrompt(prompt);
  if (task == nullptr) return nullptr;
  const std::vector<std::string> measured = task->rewards(), own = run::OwnRewards(reward);
  for (const v1::RewardTerm& term : reward.terms()) {
    // An entry may give the name to another scorer.
    const std::string& scorer = run::ScorerOf(reward, term.name()).scorer();
    if (!absl::c_linear_search(measured, scorer.empty() ? term.name() : scorer) ||
        !absl::c_linear_search(own, term.name())) {
      return nullptr;
    }
  }
  return task;
}

}  // namespace oxbow::cli
