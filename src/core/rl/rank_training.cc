// SPDX-License-Identifier: Apache-2.0
#include "core/rl/rank_training.h"

#include <ATen/ATen.h>

#include <set>

#include "base/status_macros.h"
#include "core/model/policy.h"
#include "core/parallel/ordered_sum.h"

namespace oxbow::rl {
namespace {

constexpr size_t kOutcomeNumbers = 6;

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

// Rows [begin, end) of one backward pass.
struct Pass {
  size_t begin, end;
};

// At most `rows_max` rows each, 0: all at once. Rows of a sample are neighbours, and stay together
// where there is room for them, or where they must: then a pass has at least one whole sample.
std::vector<Pass> PassesOf(const std::vector<RowRef>& refs, size_t rows_max, bool whole_samples) {
  std::vector<Pass> passes;
  for (size_t begin = 0, end = 0; begin < refs.size(); begin = end) {
    const auto sample_end = [&](size_t r) {
      while (r < refs.size() && refs[r].trajectory == refs[end].trajectory) ++r;
      return r;
    };
    do {
      const size_t next = sample_end(end);
      if (end > begin && rows_max > 0 && next - begin > rows_max) break;
      end = next;
    } while (end < refs.size());
    if (rows_max > 0 && !whole_samples) end = std::min(end, begin + rows_max);
    passes.push_back({begin, end});
  }
  return passes;
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

absl::Status AgreeToStop(parallel::Ranks& ranks, bool& stop) {
  std::vector<double> wish = {stop ? 1. : 0.};
  OXBOW_RETURN_IF_ERROR(SumOverRanks(ranks, wish));
  stop = wish[0] != 0;
  return absl::OkStatus();
}

absl::Status ShareOutcomes(parallel::Ranks& ranks, std::vector<RowOutcome>& outcomes, bool& stop) {
  std::vector<double> values;
  for (const RowOutcome& outcome : outcomes) {
    values.insert(values.end(), {outcome.log_ratio, outcome.policy_loss, outcome.kl, outcome.old_kl,
                                 outcome.centre_error, outcome.anchor});
  }
  values.push_back(stop ? 1 : 0);
  OXBOW_RETURN_IF_ERROR(SumOverRanks(ranks, values));
  stop = values.back() != 0;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const double* of = &values[kOutcomeNumbers * i];
    outcomes[i] = {.log_ratio = of[0],
                   .policy_loss = of[1],
                   .kl = of[2],
                   .old_kl = of[3],
                   .centre_error = of[4],
                   .anchor = of[5]};
  }
  return absl::OkStatus();
}

RankOptimizer::RankOptimizer(const Options& options, model::ParameterSet& parameters,
                             parallel::Ranks& ranks)
    : parameters_(parameters),
      shards_(options.shards && ranks.size() > 1),
      adamw_(options.adamw, parameters.flat(), shards_ ? ranks : *alone_, options.moments) {
  if (ranks.size() == 1 || shards_ || !options.sums) return;
  std::vector<at::Tensor> leaves;
  for (const auto& [name, tensor] : parameters.tensors()) leaves.push_back(tensor);
  buckets_ = std::make_unique<parallel::GradientBuckets>(ranks, parameters.flat_grad(), leaves);
}

void RankOptimizer::Begin() {
  if (buckets_ != nullptr) buckets_->Arm();
}

absl::StatusOr<double> RankOptimizer::Sum(double norm_max) {
  if (shards_) return adamw_.Reduce(parameters_.flat_grad(), norm_max);
  if (buckets_ != nullptr) OXBOW_RETURN_IF_ERROR(buckets_->Finish());
  return TakeSum(norm_max);
}

double RankOptimizer::TakeSum(double norm_max) {
  const double norm = ClipGradNorm(parameters_.flat_grad(), norm_max);
  adamw_.TakeReduced(parameters_.flat_grad());
  return norm;
}

absl::StatusOr<at::Tensor> RankOptimizer::Step(double rate_factor) {
  return adamw_.Step(parameters_.flat(), rate_factor);
}

// Adds the gradient of the rows of groups `part` and notes their outcomes. `before_last` is called
// once, before the last backward pass or where there is none.
absl::Status RankGradient::AddPart(const UpdateInputs& inputs, const std::vector<RowRef>& refs,
                                   parallel::Share part, const std::function<void()>& before_last,
                                   std::vector<RowOutcome>& outcomes) {
  std::vector<RowRef> chosen;
  std::vector<size_t> places;
  for (size_t r = 0; r < refs.size(); ++r) {
    if (!part.Has(refs[r].address.group)) continue;
    chosen.push_back(refs[r]);
    places.push_back(r);
  }
  if (chosen.empty()) before_last();
  for (const Pass& pass :
       PassesOf(chosen, static_cast<size_t>(options_.rows_per_pass),
                NeedsWholeSamples(FactsOf(options_.method), options_.settings.values))) {
    if (ranks_.size() == 1 && inputs.interrupted && inputs.interrupted()) {
      return absl::CancelledError("interrupted");
    }
    if (pass.end == chosen.size()) before_last();
    const std::vector<RowRef> rows(chosen.begin() + static_cast<ptrdiff_t>(pass.begin),
                                   chosen.begin() + static_cast<ptrdiff_t>(pass.end));
    const std::vector<RowOutcome> brought = AddGradient(options_, policy_, method_, inputs, rows);
    for (size_t i = 0; i < brought.size(); ++i) outcomes[places[pass.begin + i]] = brought[i];
  }
  return absl::OkStatus();
}

absl::StatusOr<double> RankGradient::Sum(const UpdateInputs& inputs,
                                         const std::vector<RowRef>& refs,
                                         std::vector<RowOutcome>& outcomes) {
  if (options_.deterministic) {
    OXBOW_RETURN_IF_ERROR(SumInParts(inputs, refs, outcomes));
    return optimizer_.TakeSum(options_.grad_norm_max);
  }
  policy_.parameters().ZeroGrad();
  OXBOW_RETURN_IF_ERROR(AddPart(
      inputs, refs, parallel::ShareOf(inputs.groups.size(), ranks_.rank(), ranks_.size()),
      [this] { optimizer_.Begin(); }, outcomes));
  return optimizer_.Sum(options_.grad_norm_max);
}

absl::Status RankGradient::SumInParts(const UpdateInputs& inputs, const std::vector<RowRef>& refs,
                                      std::vector<RowOutcome>& outcomes) {
  std::set<size_t> parts;
  for (const RowRef& ref : refs) parts.insert(ref.address.group);
  std::vector<int> owners;
  for (const size_t group : parts) {
    owners.push_back(parallel::OwnerOf(group, inputs.groups.size(), ranks_.size()));
  }
  at::Tensor& grad = policy_.parameters().flat_grad();
  parallel::OrderedSum sum(ranks_, owners);
  const parallel::Share own = parallel::ShareOf(inputs.groups.size(), ranks_.rank(), ranks_.size());
  for (const size_t group : parts) {
    if (!own.Has(group)) continue;
    policy_.parameters().ZeroGrad();
    OXBOW_RETURN_IF_ERROR(AddPart(
        inputs, refs, {group, group + 1}, [] {}, outcomes));
    sum.Add(grad);
  }
  return sum.Finish(grad);
}

}  // namespace oxbow::rl
