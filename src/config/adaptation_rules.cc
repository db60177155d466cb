// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "config/chosen_method.h"
#include "config/rules.h"

namespace oxbow::config {
namespace {

using v1::RunConfig;

constexpr double kSumSlack = 1e-9;
constexpr uint32_t kGroupsToAdapt = 5;

void ThresholdRules(const v1::AdaptationConfig& a, Findings& f) {
  f.Require(a.hard_max() >= 0 && a.hard_max() < 1, "adaptation.hard_max",
            "must be in [0, 1): a mean reward", a.hard_max());
  f.Require(a.reuse_min() >= 0 && a.reuse_min() <= a.reuse_max() && a.reuse_max() <= 1,
            "adaptation.reuse_min",
            "must be at least 0 and at most adaptation.reuse_max, which is at most 1",
            a.reuse_min());
}

// Thresholds are shares of what is right, so rewards are in [0, 1].
void MeanRules(const RunConfig& c, Findings& f) {
  double sum = 0;
  for (const v1::RewardTerm& term : c.reward().terms()) {
    sum += term.weight();
    if (term.weight() >= 0) continue;
    f.Error("reward.terms",
            absl::StrCat("adaptation compares mean rewards with thresholds in [0, 1]: weights must "
                         "not be negative, got ",
                         term.name(), ": ", term.weight()));
  }
  if (sum <= 1 + kSumSlack) return;
  f.Error("reward.terms", absl::StrCat("adaptation compares mean rewards with thresholds in "
                                       "[0, 1]: weights must sum to at most 1, got ",
                                       sum));
}

void SourceRules(const RunConfig& c, Findings& f) {
  const v1::AdaptationConfig& a = c.adaptation();
  f.Require(a.again_every() == 0 || a.again_max() > 0, "adaptation.again_max",
            "must be at least 1; to try no prompt again set adaptation.again_every to 0",
            a.again_max());
  if (a.thresholds() != v1::THRESHOLD_RULE_FIXED && c.batch().groups() < kGroupsToAdapt) {
    f.Warn(
        "adaptation.thresholds",
        absl::StrCat("stay fixed: fewer than ", kGroupsToAdapt,
                     " groups say too little of the policy, batch.groups is ", c.batch().groups()));
  }
  if (a.recent_steps() == 0) return;
  if (!ChosenMethod(c.method()).needs_density()) {
    f.Warn("adaptation.recent_steps",
           "groups are used again as they are: a method of finished images has no density to "
           "weigh older ones with; 0 uses none again");
  } else if (c.method().correction() == v1::CORRECTION_NONE) {
    f.Warn("adaptation.recent_steps",
           "groups are used again without weight: set method.correction to sequence, or 0");
  }
}

}  // namespace

void AdaptationRules(const RunConfig& c, Findings& f) {
  if (!c.adaptation().enabled()) return;
  f.Require(c.batch().group_size() >= 2, "batch.group_size",
            "must be at least 2 for adaptation: a group of one is never mixed",
            c.batch().group_size());
  f.Require(c.learner().ranks() <= 1, "learner.ranks",
            "must be 1 with adaptation: which groups a step trains on is known only when they are "
            "there, and each rank holds its own; set adaptation.enabled to false, or one rank",
            c.learner().ranks());
  f.Require(c.batch().dynamic_sampling_max() == 0, "batch.dynamic_sampling_max",
            "must be 0 with adaptation, which has its own answer to groups without a signal; set "
            "adaptation.enabled to false, or 0",
            c.batch().dynamic_sampling_max());
  f.Require(c.prompts().choice() != v1::PROMPT_CHOICE_LEARNABLE, "prompts.choice",
            "must be shuffled with adaptation, which samples failed prompts again by its own rule; "
            "set adaptation.enabled to false, or shuffled",
            "learnable");
  ThresholdRules(c.adaptation(), f);
  MeanRules(c, f);
  SourceRules(c, f);
}

}  // namespace oxbow::config
