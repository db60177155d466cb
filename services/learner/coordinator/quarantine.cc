// SPDX-License-Identifier: Apache-2.0
#include "services/learner/coordinator/quarantine.h"

namespace oxbow::learner {

bool Quarantine::Failed(GroupId group, LearnerStep step, const v1::Prompt& prompt,
                        const std::string& reason) {
  if (++failures_[group.value] < kFailuresMax || Holds(PromptId(prompt.id()))) return false;
  v1::QuarantinedPrompt& held = prompts_[prompt.id()];
  held.set_prompt_id(prompt.id());
  held.set_text(prompt.text());
  held.set_reason(reason);
  held.set_learner_step(step.value);
  return true;
}

uint32_t Quarantine::failures(GroupId group) const {
  const auto found = failures_.find(group.value);
  return found == failures_.end() ? 0 : found->second;
}

void Quarantine::Forget(GroupId group) {
  failures_.erase(failures_.begin(), failures_.lower_bound(group.value));
}

void Quarantine::FillStatus(v1::StatusResponse& response) const {
  response.set_prompts_quarantined(prompts_.size());
  for (const auto& [id, held] : prompts_) {
    if (response.quarantined_size() >= static_cast<int>(kListed)) break;
    *response.add_quarantined() = held;
  }
}

}  // namespace oxbow::learner
