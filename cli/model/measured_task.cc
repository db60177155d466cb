// SPDX-License-Identifier: Apache-2.0
#include "cli/model/measured_task.h"

#include <algorithm>
#include <string>
#include <vector>

#include "run/rewards.h"

namespace oxbow::cli {

const reward::SyntheticTask* MeasuredTask(const v1::RewardConfig& reward,
                                          const std::string& prompt) {
  const reward::SyntheticTask* const task = reward::TaskOfPrompt(prompt);
  if (task == nullptr) return nullptr;
  const std::vector<std::string> own = run::OwnRewards(reward);
  for (const v1::RewardTerm& term : reward.terms()) {
    // An entry may give the name to another scorer.
    const std::string& scorer = run::ScorerOf(reward, term.name()).scorer();
    if (!reward::HasReward(*task, scorer.empty() ? term.name() : scorer) ||
        std::find(own.begin(), own.end(), term.name()) == own.end()) {
      return nullptr;
    }
  }
  return task;
}

}  // namespace oxbow::cli
