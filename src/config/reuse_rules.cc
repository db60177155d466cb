// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "config/chosen_method.h"
#include "config/rules.h"
#include "config/validate.h"

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
  f.WarnIf(
      a.thresholds() != v1::THRESHOLD_RULE_FIXED && c.batch().groups() < kGroupsToAdapt,
      "adaptation.thresholds",
      absl::StrCat("stay fixed: fewer than ", kGroupsToAdapt,
                   " groups say too little of the policy, batch.groups is ", c.batch().groups()));
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

// Members of a group that go on from one head.
void BranchRules(const RunConfig& c, Findings& f) {
  const uint32_t branches = c.replay().branches();
  f.Require(branches >= 1 && branches < std::max(2u, c.batch().group_size()), "replay.branches",
            "must be from 1 to batch.group_size - 1: a group keeps a fresh sample", branches);
  if (branches <= 1) return;
  f.ErrorIf(!ChosenMethod(c.method()).needs_density(), "replay.branches",
            absl::StrCat("needs trajectories: ", ChosenMethod(c.method()).name,
                         " replays finished images, which have no tail; set 1, got ", branches));
  f.ErrorIf(
      c.sampling().tail() != v1::TAIL_KIND_SDE, "replay.branches",
      absl::StrCat("would all be the same image: set sampling.tail to sde, or 1, got ", branches));
  f.WarnIf(c.replay().fraction() <= 0, "replay.branches",
           "has no effect while replay.fraction is 0");
}

// A learnable draw goes by regenerations: without any all entries are equally likely. Of one entry
// there is no variance.
void DrawRules(const RunConfig& c, Findings& f) {
  const v1::ReplayConfig& r = c.replay();
  const bool varied = r.draw() == v1::REPLAY_DRAW_VARIED;
  const bool learnable = r.draw() == v1::REPLAY_DRAW_LEARNABLE;
  if (!varied && !learnable && r.draw() != v1::REPLAY_DRAW_BEST) return;
  if (r.fraction() <= 0) {
    f.Warn("replay.draw", "has no effect while replay.fraction is 0: nothing is drawn");
  } else if (varied && ReplayedGroups(c) / std::max(1u, c.services().replay_shards()) <= 1) {
    f.Warn("replay.draw",
           "varied is best where a step draws one entry of a buffer: one reward has no variance; "
           "raise replay.fraction, or choose best");
  } else if (!learnable) {
    return;
  } else if (!ChosenMethod(c.method()).needs_density()) {
    f.Warn("replay.draw",
           absl::StrCat("learnable is uniform with ", ChosenMethod(c.method()).name,
                        ", which generates no picture again: choose uniform, priority or newest"));
  } else if (c.sampling().tail() == v1::TAIL_KIND_STORED) {
    f.Warn("replay.draw",
           "learnable is uniform with sampling.tail: stored, which generates no picture again: "
           "choose uniform, priority or newest");
  }
}

// Passes over replayed samples alone, and their end.
void MixRules(const RunConfig& c, Findings& f) {
  const v1::ReplayConfig& r = c.replay();
  f.WarnIf(r.passes() > c.batch().passes() && !KeepsSuccesses(c), "replay.passes",
           "has no effect, as nothing is replayed: set replay.fraction, added or late_binding");
  if (r.reincarnate_after() == 0) return;
  f.ErrorIf(c.adaptation().enabled(), "replay.reincarnate_after",
            absl::StrCat("does not go with adaptation, which goes on to train groups again: set "
                         "adaptation.enabled to false, or this to 0, got ",
                         r.reincarnate_after()));
  f.ErrorIf(c.method().kl_weight() > 0 && c.method().kl_precedent() == 1,
            "replay.reincarnate_after",
            absl::StrCat("needs method.kl_precedent below 1: after it the reference alone pulls, "
                         "and with 1 there is none, got ",
                         r.reincarnate_after()));
  if (r.reincarnate_after() >= c.run().steps()) {
    f.Warn("replay.reincarnate_after",
           absl::StrCat("has no effect in a run of run.steps = ", c.run().steps(), ", got ",
                        r.reincarnate_after()));
  } else if (!KeepsSuccesses(c) && c.batch().passes() <= 1 && c.method().kl_weight() == 0 &&
             c.method().anchor().weight() == 0) {
    f.Warn("replay.reincarnate_after",
           "has no effect: nothing is replayed, a step has one pass, and there is no reference");
  }
}

}  // namespace

void ReuseRules(const RunConfig& c, Findings& f) {
  const v1::ReplayConfig& r = c.replay();
  BranchRules(c, f);
  DrawRules(c, f);
  MixRules(c, f);
  f.WarnIf(r.by_need() && r.fraction() <= 0, "replay.by_need",
           "has no effect while replay.fraction is 0");
  if (!r.late_binding() && r.added() == 0) return;
  const char* key = r.added() > 0 ? "replay.added" : "replay.late_binding";
  f.ErrorIf(c.adaptation().enabled(), key,
            "does not go with adaptation, which chooses a step's groups itself: set "
            "adaptation.enabled to false");
  f.ErrorIf(c.method().anchor().weight() > 0 && ChosenMethod(c.method()).needs_density(), key,
            "stores no final images, which method.anchor.weight needs: set that to 0");
  f.ErrorIf(c.learner().ranks() > 1 && r.added() % c.learner().ranks() != 0, "replay.added",
            absl::StrCat("must be a multiple of learner.ranks, so that every rank gets the same "
                         "number: ",
                         c.learner().ranks(), " ranks, got ", r.added()));
}

void AdaptationRules(const RunConfig& c, Findings& f) {
  if (!c.adaptation().enabled()) return;
  f.Require(c.batch().group_size() >= 2, "batch.group_size",
            "must be at least 2 for adaptation: a group of one is never mixed",
            c.batch().group_size());
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
