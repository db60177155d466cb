// SPDX-License-Identifier: Apache-2.0
// The groups of a step: planned ahead, awaited, replaced where they would train nothing, and made
// what the trainer takes. Rules (plan/step_rule.h) have their say in each.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "core/flow/window.h"
#include "services/learner/loop/rollout_numbers.h"
#include "services/learner/loop/run_disk.h"
#include "services/learner/plan/step_rule.h"

namespace oxbow::learner {

// The groups of a step that have arrived, and those that were replaced.
struct CollectedGroups : StepGroups {
  uint32_t refills = 0;             // Extra groups made in place of groups without a signal.
  Sampled replaced;                 // The cost of the replaced ones.
  std::map<size_t, uint64_t> lost;  // Samples whose head was lost, by group.

  uint64_t samples_lost() const;
};

// Owned by the loop's thread.
class StepSampling {
 public:
  struct Options {
    std::string run_id;  // Names the traces of its steps.
    LearnerStep first_step;
    uint64_t steps = 0;                 // The run's.
    uint32_t groups = 0;                // U
    uint32_t dynamic_sampling_max = 0;  // Extra groups for those with equal rewards.
    uint64_t staleness_max = 0;
    uint64_t run_seed = 0;
    std::optional<flow::WindowPlan> window;  // None: no step is stochastic.
    int sampling_steps = 0;
    SamplingForm form;  // The groups'.
    int ranks = 1;      // Ranks of the learner; this one is rank 0.
  };

  // All outlive it.
  StepSampling(Options options, const LoopParts& parts, const StepRules& rules, RunDisk& disk)
      : options_(std::move(options)),
        parts_(parts),
        rules_(rules),
        disk_(disk),
        planned_(options_.first_step.value) {}

  // Plans the steps that may be sampled with the weights after so many. kCancelled, here and below,
  // if the run drains.
  absl::Status PlanAhead(uint64_t committed);
  // Encodes prompts of later steps, twice as many as a step takes, so that prompts which were left
  // stay ahead of those that are planned.
  absl::Status EncodeAhead();

  // Waits for the groups of a step, and has those without a signal replaced.
  absl::StatusOr<CollectedGroups> Collect(LearnerStep step);
  // The groups as the trainer takes them. Those that rules add join `collected`.
  absl::StatusOr<std::vector<rl::Group>> Build(LearnerStep step, CollectedGroups& collected);

  // The sampling steps of this learner step that are stochastic.
  std::vector<int> WindowOf(LearnerStep step) const;
  // The position among the prompts from which a run goes on that has committed so many steps: it
  // plans the steps that were planned ahead again.
  PromptPosition PositionAt(uint64_t committed) const;

 private:
  absl::Status PlanOne(LearnerStep step, uint64_t committed);
  absl::Status Encode(std::vector<PlannedGroup>& groups);
  absl::StatusOr<std::vector<ReceivedGroup>> Await(LearnerStep step, size_t count);
  void TakeLatentsOfHeads(LearnerStep step, CollectedGroups& groups);
  absl::StatusOr<std::vector<bool>> SignalOf(const StepGroups& groups) const;
  absl::StatusOr<bool> RefillOnce(LearnerStep step, CollectedGroups& groups,
                                  std::set<uint64_t>& taken);
  absl::StatusOr<rl::Group> BuildOne(const ReceivedGroup& received, const PlannedGroup& planned);

  const Options options_;
  const LoopParts& parts_;
  const StepRules& rules_;
  RunDisk& disk_;
  uint64_t planned_;                              // Steps.
  std::map<uint64_t, PromptPosition> positions_;  // Prompt positions before each planned step.
};

}  // namespace oxbow::learner
