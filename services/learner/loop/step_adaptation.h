// SPDX-License-Identifier: Apache-2.0
// The groups that a learner step trains on where it may choose (docs/methods/bapo.md), and what the
// replay buffer keeps of them for later steps.
//
//   planning   every m steps prompts that waited in `hard_prompts` take places of the step
//   training   fresh groups that are mixed, such prompts' groups that are better now, and recent
//              groups of middling reward in the places that are left (rl::AdaptBatch)
//   commit     prompts that failed wait; groups that may be used again are kept for some steps
//
// A function of the groups, the buffer's content, the run's seed and the step: nothing here
// outlives a step but the names of prompts that are planned and not committed.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "core/rl/batch_adaptation.h"
#include "core/rl/experience.h"
#include "oxbow/v1/config.pb.h"
#include "services/learner/coordinator/group_assembler.h"
#include "services/learner/plan/conditioning_cache.h"
#include "services/learner/record/step_log.h"
#include "services/learner/replay/replay_link.h"
#include "services/learner/replay/replay_offer.h"

namespace oxbow::learner {

// The rules that a config asks for.
rl::BatchAdaptation AdaptationOf(const v1::AdaptationConfig& config);

class StepAdaptation {
 public:
  struct Options {
    rl::BatchAdaptation rules;
    int group_size = 2;   // G
    uint32_t groups = 1;  // U
    uint64_t run_seed = 0;
    OfferRules offers;
  };

  // `buffer` may be null: then groups are only chosen. All outlive this.
  StepAdaptation(Options options, ReplayLink* buffer, ConditioningCache& conditioning);

  // Prompts to plan for `step` again, at most `room`.
  std::vector<WaitingPrompt> Waiting(LearnerStep step, uint32_t room);

  // Leaves of `groups` (made of `received`) those that the step trains on, in their order, and adds
  // reused ones. A recent group that cannot be read is missing.
  absl::Status Choose(LearnerStep step, const std::vector<ReceivedGroup>& received,
                      const std::vector<PlannedGroup>& planned, std::vector<rl::Group>& groups);

  // The choice that Choose made, and its numbers, for steps.jsonl and metrics.jsonl.
  const StepChoice& choice() const { return choice_; }
  const std::map<std::string, double>& numbers() const { return numbers_; }

  // Adds what the step that was chosen means to the queues.
  void AddTo(ReplayLink::StepCommit& commit, const std::vector<ReceivedGroup>& received,
             const std::vector<PlannedGroup>& planned);

 private:
  struct Sorted {  // Places of groups that have a mean.
    std::vector<size_t> fresh;
    std::vector<size_t> again;
    std::vector<double> fresh_means;
    std::vector<double> again_means;
  };
  Sorted Sort(const std::vector<ReceivedGroup>& received,
              const std::vector<PlannedGroup>& planned) const;
  void Measure(const Sorted& sorted, const rl::AdaptedBatch& batch);
  absl::Status AddReused(const std::vector<v1::ReplayEntry>& recent,
                         const std::vector<size_t>& places, std::vector<rl::Group>& groups);

  const Options options_;
  ReplayLink* const buffer_;
  ConditioningCache& conditioning_;
  std::set<uint64_t> planned_;  // Entries of prompts that are planned again and not committed.
  StepChoice choice_;
  std::vector<EntryId> reused_;
  std::map<std::string, double> numbers_;
};

}  // namespace oxbow::learner
