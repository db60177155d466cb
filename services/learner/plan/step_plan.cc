// SPDX-License-Identifier: Apache-2.0
#include "services/learner/plan/step_plan.h"

#include <algorithm>
#include <set>
#include <utility>

namespace oxbow::learner {

const ReplayedHead* PlannedGroup::head() const {
  if (const auto* mixed = As<MixedGroup>(); mixed != nullptr) return &mixed->head;
  return whole();
}

ReplayedHead* PlannedGroup::head() {
  return const_cast<ReplayedHead*>(std::as_const(*this).head());
}

const ReplayedHead* PlannedGroup::whole() const {
  if (const auto* drawn = As<WholeGroup>(); drawn != nullptr) return &drawn->head;
  if (const auto* late = As<LateGroup>(); late != nullptr) return &late->head;
  const auto* added = As<AddedGroup>();
  return added != nullptr && added->head.has_value() ? &*added->head : nullptr;
}

bool PlannedGroup::fresh() const {
  return head() == nullptr ? As<AddedGroup>() == nullptr : As<LateGroup>() != nullptr;
}

StepPlan PlanStep(StepDraft draft, PromptOrder& order) {
  StepPlan plan{.step = draft.step, .groups = {}, .before = order.position()};
  const uint64_t first = draft.step.value * (uint64_t{draft.groups} + draft.dynamic_sampling_max);
  std::set<uint64_t> taken;
  const auto add = [&](AskedGroup asked) {
    plan.groups.push_back({.id = GroupId(first + plan.groups.size()),
                           .place = static_cast<uint32_t>(plan.groups.size()),
                           .step = draft.step,
                           .prompt = std::move(asked.prompt),
                           .conditioning = {},
                           .kind = std::move(asked.kind),
                           .sde = draft.sde});
  };
  for (std::vector<AskedGroup>* asked : {&draft.spread, &draft.next}) {
    std::erase_if(*asked, [&](const AskedGroup& group) {
      return taken.size() == draft.groups || !taken.insert(group.prompt.id()).second;
    });
  }
  size_t spread = 0;
  size_t next = 0;
  while (plan.groups.size() < draft.groups) {
    // Group s of S has place s U / S, rounded down.
    if (spread < draft.spread.size() &&
        plan.groups.size() == spread * draft.groups / draft.spread.size()) {
      add(std::move(draft.spread[spread++]));
    } else if (next < draft.next.size()) {
      add(std::move(draft.next[next++]));
    } else {
      add({order.TakeNext(taken), FreshGroup()});
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
                       .kind = FreshGroup(),
                       .sde = now[place].sde});
  }
  return refills;
}

}  // namespace oxbow::learner
