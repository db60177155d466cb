// SPDX-License-Identifier: Apache-2.0
#include "core/reward/synthetic_task.h"

#include <algorithm>

namespace oxbow::reward {
namespace {

std::vector<const SyntheticTask*>& Tasks() {
  static std::vector<const SyntheticTask*>& tasks = *new std::vector<const SyntheticTask*>;
  return tasks;
}

template <typename Holds>
const SyntheticTask* FirstOf(Holds holds) {
  const auto found = std::find_if(Tasks().begin(), Tasks().end(),
                                  [&](const SyntheticTask* task) { return holds(*task); });
  return found == Tasks().end() ? nullptr : *found;
}

}  // namespace

std::vector<uint8_t> PixelsOf(const std::vector<Image8>& frames) {
  std::vector<uint8_t> pixels;
  for (const Image8& frame : frames) {
    pixels.insert(pixels.end(), frame.pixels.begin(), frame.pixels.end());
  }
  return pixels;
}

void AddTask(const SyntheticTask& task) { Tasks().push_back(&task); }

const std::vector<const SyntheticTask*>& AllTasks() { return Tasks(); }

bool HasReward(const SyntheticTask& task, std::string_view reward) {
  const std::vector<TaskReward> own = task.rewards();
  return std::any_of(own.begin(), own.end(),
                     [&](const TaskReward& one) { return one.name == reward; });
}

const SyntheticTask* TaskOfPrompt(const std::string& prompt) {
  return FirstOf([&](const SyntheticTask& task) { return task.HasPrompt(prompt); });
}

const SyntheticTask* TaskOfRewards(std::span<const std::string> rewards) {
  return FirstOf([&](const SyntheticTask& task) {
    return std::any_of(rewards.begin(), rewards.end(),
                       [&](const std::string& reward) { return HasReward(task, reward); });
  });
}

bool SaysLayout(std::string_view reward) {
  return !reward.empty() && FirstOf([&](const SyntheticTask& task) {
                              return task.layout_reward() == reward;
                            }) != nullptr;
}

}  // namespace oxbow::reward
