#include "services/learner/desk/step_plan.h"

#include <cmath>
#include <set>
#include <utility>

namespace oxbow::learner {

uint32_t HeadsWanted(double fraction, uint32_t groups) {
  return static_cast<uint32_t>(std::lround(fraction * groups));
}

StepPlan PlanStep(LearnerStep step, uint32_t groups, std::vector<DrawnHead> heads,
                  PromptOrder& order, const std::vector<bool>& sde) {
  StepPlan plan{.step = step, .groups = {}, .before = order.position()};
  std::set<uint64_t> taken;
  const auto add = [&](v1::Prompt prompt, std::optional<ReplayHead> head) {
    plan.groups.push_back({.id = GroupId(step.value * groups + plan.groups.size()),
                           .step = step,
                           .prompt = std::move(prompt),
                           .conditioning = {},
                           .head = std::move(head),
                           .sde = sde});
  };
  for (DrawnHead& drawn : heads) {
    if (plan.groups.size() == groups) break;
    if (!taken.insert(drawn.prompt.id()).second) continue;
    add(std::move(drawn.prompt), std::move(drawn.head));
  }
  while (plan.groups.size() < groups) add(order.TakeNext(taken), std::nullopt);
  return plan;
}

}  // namespace oxbow::learner
