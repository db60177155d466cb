// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "config/chosen_method.h"
#include "config/rules.h"
#include "config/validate.h"

namespace oxbow::config {
namespace {

using v1::RunConfig;

// Members of a group that go on from one head.
void BranchRules(const RunConfig& c, Findings& f) {
  const uint32_t branches = c.replay().branches();
  f.Require(branches >= 1 && branches < std::max(2u, c.batch().group_size()), "replay.branches",
            "must be from 1 to batch.group_size - 1: a group keeps a fresh sample", branches);
  if (branches <= 1) return;
  if (!ChosenMethod(c.method()).needs_density()) {
    f.Error("replay.branches",
            absl::StrCat("needs trajectories: ", ChosenMethod(c.method()).name,
                         " replays finished images, which have no tail; set 1, got ", branches));
  }
  if (c.sampling().tail() != v1::TAIL_KIND_SDE) {
    f.Error("replay.branches",
            absl::StrCat("would all be the same image: set sampling.tail to sde, or 1, got ",
                         branches));
  }
  if (c.replay().fraction() <= 0) {
    f.Warn("replay.branches", "has no effect while replay.fraction is 0");
  }
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
  if (r.passes() > c.batch().passes() && !KeepsSuccesses(c)) {
    f.Warn("replay.passes",
           "has no effect, as nothing is replayed: set replay.fraction, added or late_binding");
  }
  if (r.reincarnate_after() == 0) return;
  if (c.adaptation().enabled()) {
    f.Error("replay.reincarnate_after",
            absl::StrCat("does not go with adaptation, which goes on to train groups again: set "
                         "adaptation.enabled to false, or this to 0, got ",
                         r.reincarnate_after()));
  }
  if (c.method().kl_weight() > 0 && c.method().kl_precedent() == 1) {
    f.Error("replay.reincarnate_after",
            absl::StrCat("needs method.kl_precedent below 1: after it the reference alone pulls, "
                         "and with 1 there is none, got ",
                         r.reincarnate_after()));
  }
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
  if (r.by_need() && r.fraction() <= 0) {
    f.Warn("replay.by_need", "has no effect while replay.fraction is 0");
  }
  if (!r.late_binding() && r.added() == 0) return;
  const char* key = r.added() > 0 ? "replay.added" : "replay.late_binding";
  if (c.adaptation().enabled()) {
    f.Error(key,
            "does not go with adaptation, which chooses a step's groups itself: set "
            "adaptation.enabled to false");
  }
  if (c.method().anchor().weight() > 0 && ChosenMethod(c.method()).needs_density()) {
    f.Error(key, "stores no final images, which method.anchor.weight needs: set that to 0");
  }
  if (c.learner().ranks() > 1 && r.added() % c.learner().ranks() != 0) {
    f.Error("replay.added",
            absl::StrCat("must be a multiple of learner.ranks, so that every rank gets the same "
                         "number: ",
                         c.learner().ranks(), " ranks, got ", r.added()));
  }
}

}  // namespace oxbow::config
