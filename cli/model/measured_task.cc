// SPDX-License-Identifier: Apache-2.0
#include "cli/model/measured_task.h"

#include <algorithm>
#include <string>
#include <vector>

#include "run/rewards.h"

namespace oxbow::cli {
namespace {

bool Holds(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

const tasks::SyntheticTask* MeasuredTask(const v1::RewardConfig& reward,
                                         const std::string& prompt) {
  const tasks::SyntheticTask* const task = tasks::TaskOfPrompt(prompt);
  if (task == nullptr) return nullptr;
  const std::vector<std::string> measured = task->rewards(), own = run::OwnRewards(reward);
  for (const v1::RewardTerm& term : reward.terms()) {
    // An entry may give the name to another scorer.
    const std::string& scorer = run::ScorerOf(reward, term.name()).scorer();
    if (!Holds(measured, scorer.empty() ? term.name() : scorer) || !Holds(own, term.name())) {
      return nullptr;
    }
  }
  return task;
}

}  // namespace oxbow::cli
