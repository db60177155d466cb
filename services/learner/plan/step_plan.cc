// SPDX-License-Identifier: Apache-2.0
#include "services/learner/plan/step_plan.h"

#include <algorithm>
#include <set>
#include <utility>

namespace oxbow::learner {

StepPlan PlanStep(LearnerStep step, uint32_t groups, std::vector<ReplayedHead> heads,
                  PromptOrder& order, const std::vector<bool>& sde, uint32_t dynamic_sampling_max,
                  std::vector<WaitingPrompt> waiting) {
  StepPlan plan{.step = step, .groups = {}, .before = order.position()};
  std::set<uint64_t> taken;
  const auto add = [&](v1::Prompt prompt, std::optional<ReplayedHead> head) {
    const uint64_t first = step.value * (uint64_t{groups} + dynamic_sampling_max);
    plan.groups.push_back({.id = GroupId(first + plan.groups.size()),
                           .place = static_cast<uint32_t>(plan.groups.size()),
                           .step = step,
                           .prompt = std::move(prompt),
                           .conditioning = {},
                           .head = std::move(head),
                           .waited = std::nullopt,
                           .sde = sde});
  };
  std::erase_if(heads, [&](const ReplayedHead& head) {
    return taken.size() == groups || !taken.insert(head.prompt.id()).second;
  });
  std::erase_if(waiting, [&](const WaitingPrompt& waited) {
    return taken.size() == groups || !taken.insert(waited.prompt.id()).second;
  });
  size_t head = 0;
  size_t waited = 0;
  while (plan.groups.size() < groups) {
    // Head h of H has place h U / H, rounded down.
    if (head < heads.size() && plan.groups.size() == head * groups / heads.size()) {
      v1::Prompt prompt = heads[head].prompt;
      add(std::move(prompt), std::move(heads[head++]));
    } else if (waited < waiting.size()) {
      add(std::move(waiting[waited].prompt), std::nullopt);
      plan.groups.back().waited = waiting[waited++].entry;
    } else {
      add(order.TakeNext(taken), std::nullopt);
    }
  }
  return plan;
}

std::vector<PlannedGroup> PlanRefill(const std::vector<PlannedGroup>& now,
                                     const std::vector<size_t>& wanted, uint32_t made,
                                     uint32_t dynamic_sampling_max, const PromptOrder& order,
                                     std::set<uint64_t>& taken) {
  std::vector<PlannedGroup> refills;
  const LearnerStep step = now.at(0).step;
  const uint64_t first = step.value * (now.size() + dynamic_sampling_max) + now.size() + made;
  const size_t count = std::min<size_t>(wanted.size(), dynamic_sampling_max - made);
  for (v1::Prompt& prompt : order.TakeExtra(step, count, taken)) {
    const size_t place = wanted[refills.size()];
    refills.push_back({.id = GroupId(first + refills.size()),
                       .place = static_cast<uint32_t>(place),
                       .step = step,
                       .prompt = std::move(prompt),
                       .conditioning = {},
                       .head = std::nullopt,
                       .waited = std::nullopt,
                       .sde = now[place].sde});
  }
  return refills;
}

}  // namespace oxbow::learner
