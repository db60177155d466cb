#include "core/rl/rank_exchange.h"

#include <ATen/ATen.h>

#include "base/status_macros.h"
#include "core/parallel/ranks.h"

namespace oxbow::rl {
namespace {

constexpr size_t kOutcomeNumbers = 5;

// Sums columns of numbers over ranks in place. One rank has nothing to wait for.
absl::Status SumOverRanks(parallel::Ranks& ranks, std::vector<double>& values) {
  if (ranks.size() == 1 || values.empty()) return absl::OkStatus();
  at::Tensor tensor = at::tensor(values, at::kDouble).to(ranks.device());
  OXBOW_RETURN_IF_ERROR(ranks.AllReduceSum(tensor));
  tensor = tensor.cpu();
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

absl::StatusOr<model::RowCount> SumRowCounts(parallel::Ranks& ranks, const model::RowCount& own) {
  std::vector<double> values = {static_cast<double>(own.forward),
                                static_cast<double>(own.backward)};
  OXBOW_RETURN_IF_ERROR(SumOverRanks(ranks, values));
  return model::RowCount{.forward = static_cast<int64_t>(values[0]),
                         .backward = static_cast<int64_t>(values[1])};
}

absl::Status ShareOutcomes(parallel::Ranks& ranks, std::vector<RowOutcome>& outcomes) {
  std::vector<double> values;
  for (const RowOutcome& outcome : outcomes) {
    values.insert(values.end(), {outcome.log_ratio, outcome.policy_loss, outcome.kl, outcome.old_kl,
                                 outcome.anchor});
  }
  OXBOW_RETURN_IF_ERROR(SumOverRanks(ranks, values));
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const double* of = &values[kOutcomeNumbers * i];
    outcomes[i] = {
        .log_ratio = of[0], .policy_loss = of[1], .kl = of[2], .old_kl = of[3], .anchor = of[4]};
  }
  return absl::OkStatus();
}

}  // namespace oxbow::rl
