#include "services/learner/coordinator/step_plan.h"

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
  for (ReplayedHead& head : heads) {
    if (plan.groups.size() == groups) break;
    if (!taken.insert(head.prompt.id()).second) continue;
    v1::Prompt prompt = head.prompt;
    add(std::move(prompt), std::move(head));
  }
  for (WaitingPrompt& waited : waiting) {
    if (plan.groups.size() == groups) break;
    if (!taken.insert(waited.prompt.id()).second) continue;
    add(std::move(waited.prompt), std::nullopt);
    plan.groups.back().waited = waited.entry;
  }
  while (plan.groups.size() < groups) add(order.TakeNext(taken), std::nullopt);
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
