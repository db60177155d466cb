// SPDX-License-Identifier: Apache-2.0
// Rules by which steps reuse stored successes (core/replay/reuse_rules.h, docs/methods/reuse.md).
//
//   StoredSuccesses   groups of a step get drawn heads: so many, or as many as the run's fresh
//                     groups say that it needs. Its own successes are offered to the buffer
//   LateBinding       a fresh group that failed whole gets its prompt's stored success
//   AddedSuccesses    the newest stored successes train beside the groups, each as a group of one
//
// The last two ask the buffer for the entries that they may need, without latents: those of the
// step's failed prompts, and the newest. What that costs does not grow with the buffer. They draw
// nothing. Entries that cannot be read are left out, with a warning.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/replay/reuse_rules.h"
#include "services/learner/plan/step_rule.h"
#include "services/learner/replay/replay_link.h"
#include "services/learner/replay/replay_offer.h"

namespace oxbow::learner {

// Added groups have ids of their own: this plus (step x K + place). Groups of training count from
// 0, held-out ones from 2^63.
inline constexpr uint64_t kAddedGroups = uint64_t{1} << 62;

struct ReuseOptions {
  ReplayLink* buffer = nullptr;  // Null: nothing is reused. Outlives the rules.
  uint32_t heads_max = 0;        // Groups of a step with a drawn head, at most.
  bool by_need = false;
  uint32_t staleness_max = 0;  // A step is planned at most so many steps before it is due.
  bool stored_tail = false;    // A head with all its stochastic steps is a complete sample.
  uint32_t added = 0;          // K
  replay::DrawLimits limits = {};
  uint64_t until = 0;                // Later learner steps reuse nothing; 0: all do.
  double full_reward = 1;            // Rates of success are shares of it.
  std::optional<OfferRules> offers;  // None: no success is offered.
  uint32_t failures_max = 0;         // Regenerations in a row that may fail; 0: any number.

  bool at(LearnerStep step) const {
    return buffer != nullptr && (until == 0 || step.value < until);
  }
};

class StoredSuccesses final : public StepRule {
 public:
  // `state`: from a checkpoint.
  StoredSuccesses(ReuseOptions options, replay::ReuseState state)
      : options_(std::move(options)), state_(std::move(state)) {}

  absl::Status Plan(StepDraft& draft) override;
  absl::Status Join(LearnerStep step, const Signal& signal, StepGroups& groups) override;
  void See(LearnerStep step, const ReceivedGroup& received, const PlannedGroup& planned) override;
  void Follow(LearnerStep step, const StepGroups& groups, Numbers& numbers) override;
  void Offer(const StepGroups& groups, StepCommit& commit, Numbers& numbers) override;
  void Save(RunState& state) const override;

  // With `committed` steps behind the state: the same whenever the step is planned.
  uint32_t heads_wanted(LearnerStep step, uint64_t committed) const;
  const replay::ReuseState& state() const { return state_; }

 private:
  struct FreshSums {  // Over the fresh groups that were seen since the last commit.
    double groups = 0;
    double without_signal = 0;
    double rewards = 0;
    double samples = 0;
  };

  const ReuseOptions options_;
  replay::ReuseState state_;
  FreshSums seen_;
  std::vector<buffer::Rescored> rescored_;  // Findings on the heads of groups that were seen.
};

class LateBinding final : public StepRule {
 public:
  explicit LateBinding(ReuseOptions options) : options_(std::move(options)) {}

  // Gives groups without a signal the success, whole, where it is better than all their samples.
  absl::Status Join(LearnerStep step, const Signal& signal, StepGroups& groups) override;
  void Follow(LearnerStep step, const StepGroups& groups, Numbers& numbers) override;

 private:
  const ReuseOptions options_;
};

class AddedSuccesses final : public StepRule {
 public:
  // `known` outlives this.
  AddedSuccesses(ReuseOptions options, const StoredSuccesses& known)
      : options_(std::move(options)), known_(known) {}

  // Puts K groups between those of the step, evenly, so that ranks that share U and K equally share
  // them all equally: each of a stored success, or of nothing where the buffer has no more.
  absl::Status Join(LearnerStep step, const Signal& signal, StepGroups& groups) override;

 private:
  const ReuseOptions options_;
  const StoredSuccesses& known_;
};

}  // namespace oxbow::learner
