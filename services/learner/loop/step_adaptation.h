// SPDX-License-Identifier: Apache-2.0
// The groups that a learner step trains on where it may choose (docs/methods/bapo.md), and what the
// replay buffer keeps of them for later steps.
//
//   Plan     every m steps prompts that waited in `hard_prompts` take places of the step
//   Choose   fresh groups that are mixed, such prompts' groups that are better now, and recent
//            groups of middling reward in the places that are left (rl::AdaptBatch): the rank of a
//            place trains what stands there
//   Offer    prompts that failed wait; groups that may be used again are kept for some steps
//
// A function of the groups, the buffer's content, the run's seed and the step: nothing here
// outlives a step but the names of prompts that are planned and not committed.
#pragma once

#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "core/rl/batch_adaptation.h"
#include "core/rl/experience.h"
#include "services/learner/plan/conditioning_cache.h"
#include "services/learner/plan/step_rule.h"
#include "services/learner/replay/replay_link.h"
#include "services/learner/replay/replay_offer.h"

namespace oxbow::learner {

class StepAdaptation final : public StepRule {
 public:
  struct Options {
    rl::BatchAdaptation rules;
    int group_size = 2;   // G
    uint32_t groups = 1;  // U
    int ranks = 1;        // Ranks of the learner; this one is rank 0.
    uint64_t run_seed = 0;
    OfferRules offers;
  };

  // `buffer` may be null: then groups are only chosen. All outlive this.
  StepAdaptation(Options options, ReplayLink* buffer, ConditioningCache& conditioning);

  absl::Status Plan(StepDraft& draft) override;
  // A recent group that cannot be read is missing.
  absl::Status Choose(LearnerStep step, StepGroups& groups, std::vector<rl::Group>& built) override;
  void Follow(LearnerStep step, const StepGroups& groups, Numbers& numbers) override;
  void Offer(const StepGroups& groups, StepCommit& commit, Numbers& numbers) override;

 private:
  struct Sorted {  // Places of groups that have a mean.
    std::vector<size_t> fresh;
    std::vector<size_t> again;
    std::vector<double> fresh_means;
    std::vector<double> again_means;
  };
  static Sorted Sort(const StepGroups& groups);
  void Measure(const Sorted& sorted, const rl::AdaptedBatch& batch);
  absl::StatusOr<rl::Group> BuildStored(v1::Group& group, int holder);

  const Options options_;
  ReplayLink* const buffer_;
  ConditioningCache& conditioning_;
  std::set<uint64_t> planned_;  // Entries of prompts that are planned again and not committed.
  std::vector<EntryId> reused_;
  Numbers numbers_;  // The last choice's.
};

}  // namespace oxbow::learner
