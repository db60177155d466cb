// SPDX-License-Identifier: Apache-2.0
// Prompts with images to which a reward server answers without a score.
//
// Noise is a function of the group, so a group that fails for such an image fails again. With
// reward.on_failure `fail` its prompt is quarantined after a few failures: the group is then leased
// as one that drops its unscored samples. Whether a prompt is in quarantine changes only how often
// a group is made until then, never which samples are dropped; so a run stays a function of its
// seed, and a restarted learner need not remember the list. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/ids.h"
#include "oxbow/v1/common.pb.h"
#include "oxbow/v1/coordinator.pb.h"

namespace oxbow::learner {

class Quarantine {
 public:
  static constexpr uint32_t kFailuresMax = 2;  // After these of one group, its prompt is in.
  static constexpr size_t kListed = 100;       // Prompts that a status lists.

  // A group failed because of images without a score. True if this quarantines its prompt.
  bool Failed(GroupId group, LearnerStep step, const v1::Prompt& prompt, const std::string& reason);

  // All samples of a group of this prompt have scores: the prompt leaves the quarantine.
  void Scored(PromptId prompt) { prompts_.erase(prompt.value); }

  bool Holds(PromptId prompt) const { return prompts_.contains(prompt.value); }
  // Failures of this kind of one group.
  uint32_t failures(GroupId group) const;
  // Forgets the failures of groups below `group`.
  void Forget(GroupId group);

  size_t size() const { return prompts_.size(); }
  void FillStatus(v1::StatusResponse& response) const;

 private:
  std::map<uint64_t, uint32_t> failures_;              // By group.
  std::map<uint64_t, v1::QuarantinedPrompt> prompts_;  // By prompt.
};

}  // namespace oxbow::learner
