// SPDX-License-Identifier: Apache-2.0
// The learner's evaluations: of the weights that it has, and those that an earlier start owes.
#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "metrics/step_metrics.h"
#include "services/learner/checkpoint_tensors.h"
#include "services/learner/evaluated_network.h"
#include "services/learner/learner_process.h"

namespace oxbow::learner {

absl::Status LearnerProcess::BeginEvaluation() {
  const EvaluatedNetwork evaluated(setup_.config, *policy_);
  return evaluation_by_workers_->Begin(evaluated.network(), evaluated.parameters(),
                                       trainer_->version());
}

absl::StatusOr<EvaluationResult> LearnerProcess::Evaluate() {
  absl::StatusOr<EvaluationResult> result;
  if (evaluation_by_workers_ != nullptr) {
    result = evaluation_by_workers_->Await([this] { return assembler_.stopped(); });
  } else {
    const EvaluatedNetwork evaluated(setup_.config, *policy_);
    result = evaluation_->Run(evaluated.network(), leader_.get());
  }
  if (result.ok()) publisher_->Evaluated(result->metrics.at(metric::kEvalRewardMean));
  return result;
}

// Where its weights are not the policy's, the policy has them while they are copied or drawn with.
// No other rank has them, so none takes part.
absl::StatusOr<EvaluationResult> LearnerProcess::EvaluateOwed(uint64_t committed) {
  if (committed == from_.committed_steps) {
    if (evaluation_by_workers_ != nullptr) OXBOW_RETURN_IF_ERROR(BeginEvaluation());
    return Evaluate();
  }
  OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors owed, OwedWeightsOf(*resumed_, committed));
  absl::StatusOr<EvaluationResult> drawn_here;
  {
    const EvaluatedNetwork evaluated(setup_.config, *policy_);
    const parallel::HostCopy own(evaluated.parameters().flat());
    evaluated.parameters().CopyFrom(model::ParameterSet(owed, /*trainable=*/false));
    absl::Status begun;
    if (evaluation_by_workers_ != nullptr) {
      begun = evaluation_by_workers_->Begin(evaluated.network(), evaluated.parameters(),
                                            trainer_->version());
    } else {
      drawn_here = evaluation_->Run(evaluated.network());
    }
    own.PutBack(evaluated.parameters().flat());
    OXBOW_RETURN_IF_ERROR(begun);
  }
  return evaluation_by_workers_ != nullptr ? Evaluate() : drawn_here;
}

// An evaluation beside training is owed with weights that the policy has no more.
void LearnerProcess::AddOwedWeights(const RunState& state, CheckpointCopy& copy) {
  const std::vector<uint64_t>& owed = state.owed_evaluations;
  if (evaluation_by_workers_ == nullptr) return;
  std::optional<weights::Snapshot> cut = evaluation_by_workers_->TakeCutOff();
  if (!cut.has_value() || owed.empty() || owed.front() == state.committed_steps) return;
  copy.chunked.emplace(kOwedWeights, *std::move(cut));
}

}  // namespace oxbow::learner
