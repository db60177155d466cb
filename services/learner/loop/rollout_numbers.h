// SPDX-License-Identifier: Apache-2.0
// Numbers about how the groups of a step were made, for its line in metrics.jsonl.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/flow/split_tree.h"
#include "oxbow/v1/config.pb.h"
#include "services/learner/coordinator/group_assembler.h"
#include "services/learner/loop/loop_parts.h"

namespace oxbow::learner {

// Measures the cost of the groups: groups of one worker with equal times were sampled in one batch.
void MeasureProduction(const std::vector<ReceivedGroup>& received,
                       std::map<std::string, double>& numbers);

// Amounts that workers sampled.
struct Sampled {
  double samples = 0;
  double steps = 0;  // Network steps of samples; samples of a tree share those of its nodes.
  double latent_bytes = 0;

  Sampled& operator+=(const Sampled& other);
};

// How a run samples its groups.
struct SamplingForm {
  flow::SplitTree splits;  // Where each group is a row of trees.
  uint32_t group_size = 0;
  double compression = 1;  // sampling.compression.share
};

Sampled SampledFor(const v1::Group& group, const SamplingForm& form);

// Sampling steps that were taken for the sample: those of its tail, where it has a stored head, and
// fewer than the run's where they were compressed (`share`: sampling.compression.share).
int StepsSampled(const v1::Trajectory& sample, double share);

struct CollectedGroups;

// The numbers of a step that its groups and the replay buffer tell, and the warnings that follow.
// Owned by the loop's thread.
class StepMeasure {
 public:
  using Numbers = std::map<std::string, double>;

  struct Options {
    SamplingForm form;  // The groups'.
    v1::RewardConfig reward;
    double adamw_epsilon = 0;  // A warning says when it exceeds the gradients.
    int rows_per_step = 1;     // Network rows per sampling step; guidance takes two.
  };

  // `parts` outlive it.
  StepMeasure(Options options, const LoopParts& parts)
      : options_(std::move(options)), parts_(parts) {}

  // Adds the numbers of a step that has trained on these groups. `window`: its stochastic steps.
  void Measure(LearnerStep step, const CollectedGroups& groups, const std::vector<int>& window,
               Numbers& numbers);
  // Adds what the buffer says of itself.
  void MeasureBuffer(Numbers& numbers) const;

 private:
  void MeasureGroups(LearnerStep step, const CollectedGroups& groups, Numbers& numbers) const;
  void MeasureHeads(const std::vector<PlannedGroup>& planned, Numbers& numbers) const;
  void WarnOfLostSteps(LearnerStep step, const Numbers& numbers);
  void NoteUnscored();

  const Options options_;
  const LoopParts& parts_;
  bool epsilon_warned_ = false;
  std::string unscored_reason_;  // The last that was noted.
};

}  // namespace oxbow::learner
