#include "core/rl/rank_exchange.h"

#include <ATen/ATen.h>

#include "base/status_macros.h"
#include "core/parallel/ranks.h"

namespace oxbow::rl {
namespace {

// Sums columns of numbers over ranks in place. One rank has nothing to wait for.
absl::Status SumOverRanks(parallel::Ranks& ranks, std::vector<double>& values) {
  if (ranks.size() == 1 || values.empty()) return absl::OkStatus();
  at::Tensor tensor = at::tensor(values, at::kDouble);
  OXBOW_RETURN_IF_ERROR(ranks.AllReduceSum(tensor));
  const double* data = tensor.data_ptr<double>();
  values.assign(data, data + tensor.numel());
  return absl::OkStatus();
}

}  // namespace

absl::Status ShareWeights(parallel::Ranks& ranks, std::vector<SequenceWeight>& weights) {
  std::vector<double> values;
  for (const SequenceWeight& weight : weights) {
    values.insert(values.end(), {weight.log_weight, weight.weight, weight.truncated ? 1. : 0.,
                                 weight.evict ? 1. : 0.});
  }
  OXBOW_RETURN_IF_ERROR(SumOverRanks(ranks, values));
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = {.log_weight = values[4 * i],
                  .weight = values[4 * i + 1],
                  .truncated = values[4 * i + 2] != 0,
                  .evict = values[4 * i + 3] != 0};
  }
  return absl::OkStatus();
}

absl::Status ShareOutcomes(parallel::Ranks& ranks, std::vector<RowOutcome>& outcomes) {
  std::vector<double> values;
  for (const RowOutcome& outcome : outcomes) {
    values.insert(values.end(),
                  {outcome.log_ratio, outcome.policy_loss, outcome.kl, outcome.old_kl});
  }
  OXBOW_RETURN_IF_ERROR(SumOverRanks(ranks, values));
  for (size_t i = 0; i < outcomes.size(); ++i) {
    outcomes[i] = {.log_ratio = values[4 * i],
                   .policy_loss = values[4 * i + 1],
                   .kl = values[4 * i + 2],
                   .old_kl = values[4 * i + 3]};
  }
  return absl::OkStatus();
}

}  // namespace oxbow::rl
