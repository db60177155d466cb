// SPDX-License-Identifier: Apache-2.0
// When and what a step reuses besides the heads that it draws: pure rules.
//
//   by need         the number of mixed groups follows z, a running mean of the share of fresh
//                   groups without a signal: H(z) = round(H_max clamp((z - .25) / .5, 0, 1))
//   added           the newest stored successes train beside the groups of the step
//   late binding    a fresh group that failed whole gets its prompt's stored success
//
// The thresholds are a choice: up to a quarter of groups without a signal nothing is replayed, from
// three quarters on all that may be. What the rule was worth:
// docs/methods/reuse.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "core/replay/draw.h"

namespace oxbow::replay {

// A run's memory of its fresh groups. Before the first step nothing is known: need is 1.
struct ReuseState {
  double need = 1;          // z, in [0, 1].
  double success_rate = 0;  // Running mean of fresh rewards.
  // z after the steps before, the latest first: steps that were planned ahead used them.
  std::vector<double> earlier;

  bool operator==(const ReuseState&) const = default;
};

// z and the mean after a step; each moves by .4 of its distance. `without_signal` is a share in
// [0, 1]; a step without fresh groups changes nothing, and is not to be told.
ReuseState Followed(const ReuseState& state, double without_signal, double mean_reward);

// The state after one more committed step, of a run whose steps are planned at most `ahead` steps
// before they are due.
ReuseState Committed(const ReuseState& before, ReuseState after, size_t ahead);

// The z that the plan of `step` uses, with `committed` steps behind the state: the one after
// step - ahead steps, whenever it is asked. Steps before `ahead` are planned at the start, with the
// first z. An older z than the state has: the oldest that it has.
double NeedFor(const ReuseState& state, LearnerStep step, uint64_t committed, size_t ahead);

// H(z): at most `heads_max`.
uint32_t HeadsByNeed(uint32_t heads_max, double need);

// An entry of the replay buffer, as far as the rules look at it.
struct StoredEntry {
  EntryId id;
  PromptId prompt;
  LearnerStep birth;
  uint64_t uses = 0;
  double reward = 0;
};

// Places of the newest `count` entries that may be drawn for `step` (draw.h), newest first; of
// equally new ones the lower id first. Not those of `taken`, which are in the step already.
std::vector<size_t> NewestEntries(const std::vector<StoredEntry>& entries, size_t count,
                                  LearnerStep step, const DrawLimits& limits,
                                  const std::vector<EntryId>& taken);

// The place of the entry that a failed group of `prompt` gets: its prompt's, if it may be drawn for
// `step`, is not of `taken` and has a better reward than any sample of the group. The buffer has
// one entry of a prompt at most; of several the one with the highest reward, then the lowest id.
std::optional<size_t> EntryForFailure(const std::vector<StoredEntry>& entries, PromptId prompt,
                                      double best_reward, LearnerStep step,
                                      const DrawLimits& limits, const std::vector<EntryId>& taken);

}  // namespace oxbow::replay
