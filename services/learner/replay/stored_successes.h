// SPDX-License-Identifier: Apache-2.0
// How the learner reuses stored successes besides the heads that a step draws
// (core/replay/reuse_rules.h, docs/methods/reuse.md).
//
//   planning   how many groups get a drawn head
//   before     fresh groups that failed whole get their prompt's stored success; the newest stored
//   training   successes stand beside the groups, each as a group of one
//   after it   what the fresh groups said of the need for all that
//
// Both ask the buffer for the entries that they may need, without latents: those of the step's
// failed prompts, and the newest. What that costs does not grow with the buffer. A function of the
// groups, the buffer's content and the state; draws nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "core/replay/reuse_rules.h"
#include "services/learner/coordinator/group_assembler.h"
#include "services/learner/plan/step_plan.h"
#include "services/learner/replay/replay_link.h"

namespace oxbow::learner {

// Added groups have ids of their own: this plus (step x K + place). Groups of training count from
// 0, held-out ones from 2^63.
inline constexpr uint64_t kAddedGroups = uint64_t{1} << 62;

class StoredSuccesses {
 public:
  struct Options {
    uint32_t heads_max = 0;  // Groups of a step with a drawn head, at most.
    bool by_need = false;
    uint32_t staleness_max = 0;  // A step is planned at most so many steps before it is due.
    bool late_binding = false;
    uint32_t added = 0;  // K
    replay::DrawLimits limits;
    uint64_t until = 0;      // Later learner steps reuse nothing; 0: all do.
    double full_reward = 1;  // Rates of success are shares of it.
  };

  // `buffer` may be null: then nothing is reused. It outlives this.
  StoredSuccesses(Options options, ReplayLink* buffer, const replay::ReuseState& state)
      : options_(options), buffer_(buffer), state_(state) {}

  bool reuses(LearnerStep step) const {
    return buffer_ != nullptr && (options_.until == 0 || step.value < options_.until);
  }
  // With `committed` steps behind the state: the same whenever the step is planned.
  uint32_t heads_wanted(LearnerStep step, uint64_t committed) const;
  bool binds_late(LearnerStep step) const { return reuses(step) && options_.late_binding; }

  // Gives fresh groups without a signal the stored success of their prompt, whole, where it is
  // better than all their samples. Then puts K groups between those of the step, evenly, so that
  // ranks that share U and K equally share them all equally: each of a stored success, or of
  // nothing where the buffer has no more. `signal` is read only where binds_late(step). Entries
  // that cannot be read are left out, with a warning.
  void Join(LearnerStep step, const std::vector<bool>& signal, std::vector<ReceivedGroup>& received,
            std::vector<PlannedGroup>& planned);

  // Sums over fresh groups.
  struct FreshSums {
    double groups = 0;
    double without_signal = 0;
    double rewards = 0;
    double samples = 0;
  };
  static void Count(const ReceivedGroup& received, const PlannedGroup& planned, FreshSums& sums);

  // Tells of the fresh groups of a committed step. `replaced`: those in whose place others came.
  void Follow(const std::vector<ReceivedGroup>& received, const std::vector<PlannedGroup>& planned,
              FreshSums replaced);

  const replay::ReuseState& state() const { return state_; }

 private:
  void BindLate(LearnerStep step, const std::vector<bool>& signal, std::vector<EntryId>& taken,
                const std::vector<ReceivedGroup>& received, std::vector<PlannedGroup>& planned);
  void Add(LearnerStep step, const std::vector<EntryId>& taken,
           std::vector<ReceivedGroup>& received, std::vector<PlannedGroup>& planned);

  const Options options_;
  ReplayLink* const buffer_;
  replay::ReuseState state_;
};

}  // namespace oxbow::learner
