// SPDX-License-Identifier: Apache-2.0
#include "core/rl/rank_training.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "base/status_macros.h"
#include "core/model/policy.h"

namespace oxbow::rl {
namespace {

constexpr double RowOutcome::*kOutcomeNumbers[] = {
    &RowOutcome::log_ratio,    &RowOutcome::policy_loss, &RowOutcome::kl,
    &RowOutcome::kl_precedent, &RowOutcome::old_kl,      &RowOutcome::centre_error,
    &RowOutcome::anchor,       &RowOutcome::surrogate};
static_assert(sizeof(RowOutcome) == std::size(kOutcomeNumbers) * sizeof(double));  // All of them.

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

constexpr int64_t kAlignedElements = 64;  // As AdamW's pieces.

// The elements [begin, end) of [N] that a process writes.
std::pair<int64_t, int64_t> PartOf(model::MemoryShare share, int64_t length) {
  const int64_t even = (length + share.count - 1) / share.count;
  const int64_t stride = (even + kAlignedElements - 1) / kAlignedElements * kAlignedElements;
  return {std::min(length, stride * share.place), std::min(length, stride * (share.place + 1))};
}

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
    for (const auto number : kOutcomeNumbers) values.push_back(outcome.*number);
  }
  values.push_back(stop ? 1 : 0);
  OXBOW_RETURN_IF_ERROR(SumOverRanks(ranks, values));
  stop = values.back() != 0;
  const double* value = values.data();
  for (RowOutcome& outcome : outcomes) {
    for (const auto number : kOutcomeNumbers) outcome.*number = *value++;
  }
  return absl::OkStatus();
}

RankOptimizer::RankOptimizer(const Options& options, model::ParameterSet& parameters,
                             parallel::Ranks& ranks)
    : parameters_(parameters),
      shards_(options.shards && ranks.size() > 1),
      adamw_(options.adamw, parameters.flat(), shards_ ? ranks : *alone_, options.moments,
             parameters.device()) {
  std::vector<at::Tensor> leaves;
  for (const auto& [name, leaf] : parameters.leaves()) leaves.push_back(leaf);
  if (shards_ && options.shards_gradient) {
    sharded_gradient_ = std::make_unique<parallel::ShardedGradient>(ranks, leaves, adamw_.stride());
    return;
  }
  at::Tensor& flat_grad = parameters.flat_grad();
  if (ranks.size() == 1 || shards_ || !options.sums) return;
  buckets_ = std::make_unique<parallel::GradientBuckets>(ranks, flat_grad, leaves);
}

void RankOptimizer::Begin() {
  if (buckets_ != nullptr) buckets_->Arm();
}

absl::StatusOr<double> RankOptimizer::Sum(double norm_max) {
  if (sharded_gradient_ != nullptr) return adamw_.TakePiece(sharded_gradient_->own(), norm_max);
  if (shards_) return adamw_.Reduce(parameters_.flat_grad(), norm_max);
  if (buckets_ != nullptr) OXBOW_RETURN_IF_ERROR(buckets_->Finish());
  const double norm = ClipGradNorm(parameters_.flat_grad(), norm_max);
  adamw_.TakeReduced(parameters_.flat_grad());
  return norm;
}

void RankOptimizer::TakeSum(double norm, double norm_max) {
  at::Tensor sum =
      sharded_gradient_ != nullptr ? sharded_gradient_->own() : parameters_.flat_grad();
  LimitNorm(norm, norm_max, sum);
  sharded_gradient_ != nullptr ? adamw_.TakeLimitedPiece(sum) : adamw_.TakeReduced(sum);
}

absl::StatusOr<at::Tensor> RankOptimizer::Step(double rate_factor, model::ParameterSet* average,
                                               double decay_max) {
  const bool on_host = sharded_gradient_ != nullptr && parameters_.offloaded();
  const bool follows_here = on_host && average != nullptr && average->share().count > 1;
  const double decay = EmaDecay(adamw_.updates() + 1, decay_max);
  parameters_.BeginNarrow();
  OXBOW_ASSIGN_OR_RETURN(const at::Tensor change,
                         on_host ? StepOnHost(rate_factor, follows_here ? average : nullptr, decay)
                                 : adamw_.Step(parameters_.flat(), rate_factor,
                                               shards_ ? at::Tensor() : parameters_.narrow()));
  if (on_host || !shards_) parameters_.EndNarrow();
  if (average != nullptr && !follows_here) {
    UpdateEma(average->flat(), parameters_.flat(), decay, parameters_.device());
  }
  return change;
}

// The next weights come to memory of their own. Every rank has them before one reads them.
absl::StatusOr<at::Tensor> RankOptimizer::StepOnHost(double rate_factor,
                                                     model::ParameterSet* shared_average,
                                                     double decay) {
  const at::NoGradGuard no_grad;
  const auto [from, to] = PartOf(parameters_.share(), parameters_.numel());
  const at::Tensor next = parameters_.next(), narrow = parameters_.narrow();
  const auto take = [&](int64_t begin, const at::Tensor& part) {
    const int64_t first = std::max(begin, from);
    const int64_t count = std::min(begin + part.numel(), to) - first;
    if (count <= 0) return;
    const at::Tensor own = part.narrow(0, first - begin, count);
    next.narrow(0, first, count).copy_(own, /*non_blocking=*/true);
    if (narrow.defined()) {
      narrow.narrow(0, first, count).copy_(own.to(narrow.scalar_type()), /*non_blocking=*/true);
    }
    if (shared_average == nullptr) return;
    const at::Tensor before = shared_average->flat().narrow(0, first, count);
    at::Tensor average = at::empty_like(own).copy_(before, /*non_blocking=*/true);
    average.lerp_(own, 1 - decay);
    shared_average->next().narrow(0, first, count).copy_(average, /*non_blocking=*/true);
  };
  OXBOW_ASSIGN_OR_RETURN(const at::Tensor change,
                         adamw_.StepInto(take, parameters_.flat(), rate_factor));
  parameters_.ExchangeWithNext();
  if (shared_average != nullptr) shared_average->ExchangeWithNext();
  return change;
}

std::string RankOptimizer::NotFinite() const {
  const int64_t begin = sharded_gradient_ != nullptr ? sharded_gradient_->begin() : 0;
  const at::Tensor held =
      sharded_gradient_ != nullptr ? sharded_gradient_->own() : parameters_.flat_grad();
  int64_t place = 0;  // Where a parameter is in the flat gradient.
  for (const auto& [name, tensor] : parameters_.tensors()) {
    const int64_t from = std::max(place, begin);
    place += tensor.numel();
    const int64_t to = std::min(place, begin + held.numel());
    if (from >= to) continue;
    if (!held.narrow(0, from - begin, to - from).isfinite().all().item<bool>()) return name;
  }
  return "";
}

RankGradient::Work RankGradient::WorkOf(const std::vector<RowRef>& refs,
                                        const std::function<bool(size_t group)>& is_in) const {
  Work work;
  for (size_t r = 0; r < refs.size(); ++r) {
    if (!is_in(refs[r].address.group)) continue;
    work.rows.push_back(refs[r]);
    work.places.push_back(r);
  }
  work.passes = PassesOf(work.rows, static_cast<size_t>(options_.rows_per_pass),
                         FactsOf(options_.method).whole_samples);
  return work;
}

// Adds the gradient of one pass and notes the outcomes of its rows.
absl::Status RankGradient::RunPass(const UpdateInputs& inputs, const Work& work, const Pass& pass,
                                   std::vector<RowOutcome>& outcomes) {
  if (ranks_.size() == 1 && inputs.interrupted && inputs.interrupted()) {
    return absl::CancelledError("interrupted");
  }
  const std::vector<RowRef> rows(work.rows.begin() + static_cast<ptrdiff_t>(pass.begin),
                                 work.rows.begin() + static_cast<ptrdiff_t>(pass.end));
  const std::vector<RowOutcome> brought = AddGradient(options_, policy_, method_, inputs, rows);
  for (size_t i = 0; i < brought.size(); ++i) outcomes[work.places[pass.begin + i]] = brought[i];
  return absl::OkStatus();
}

absl::StatusOr<double> RankGradient::Sum(const UpdateInputs& inputs,
                                         const std::vector<RowRef>& refs,
                                         std::vector<RowOutcome>& outcomes) {
  if (options_.deterministic) {
    OXBOW_ASSIGN_OR_RETURN(const double norm, SumInParts(inputs, refs, outcomes));
    optimizer_.TakeSum(norm, options_.grad_norm_max);
    return norm;
  }
  OXBOW_RETURN_IF_ERROR(optimizer_.sharded_gradient() != nullptr
                            ? SumSharded(inputs, refs, outcomes)
                            : SumWhole(inputs, refs, outcomes));
  return optimizer_.Sum(options_.grad_norm_max);
}

absl::Status RankGradient::SumWhole(const UpdateInputs& inputs, const std::vector<RowRef>& refs,
                                    std::vector<RowOutcome>& outcomes) {
  policy_.parameters().ZeroGrad();
  const std::vector<int> holders = HoldersOf(inputs.groups, ranks_.size());
  const Work work = WorkOf(refs, [&](size_t group) { return holders[group] == ranks_.rank(); });
  if (work.passes.empty()) optimizer_.Begin();
  for (const Pass& pass : work.passes) {
    if (&pass == &work.passes.back()) optimizer_.Begin();
    OXBOW_RETURN_IF_ERROR(RunPass(inputs, work, pass, outcomes));
  }
  return absl::OkStatus();
}

// Every pass is summed over ranks, so all take part in as many as the one with the most.
absl::Status RankGradient::SumSharded(const UpdateInputs& inputs, const std::vector<RowRef>& refs,
                                      std::vector<RowOutcome>& outcomes) {
  Work own;
  size_t passes = 0;
  const std::vector<int> holders = HoldersOf(inputs.groups, ranks_.size());
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    Work work = WorkOf(refs, [&](size_t group) { return holders[group] == rank; });
    passes = std::max(passes, work.passes.size());
    if (rank == ranks_.rank()) own = std::move(work);
  }
  parallel::ShardedGradient& gradient = *optimizer_.sharded_gradient();
  gradient.Zero();
  for (size_t pass = 0; pass < passes; ++pass) {
    gradient.Arm();
    if (pass < own.passes.size()) {
      OXBOW_RETURN_IF_ERROR(RunPass(inputs, own, own.passes[pass], outcomes));
    }
    OXBOW_RETURN_IF_ERROR(gradient.Finish());
  }
  return absl::OkStatus();
}

// One gradient per group, on the rank that has it. Returns the norm of their sum.
absl::StatusOr<double> RankGradient::SumInParts(const UpdateInputs& inputs,
                                                const std::vector<RowRef>& refs,
                                                std::vector<RowOutcome>& outcomes) {
  std::set<size_t> parts;
  for (const RowRef& ref : refs) parts.insert(ref.address.group);
  const std::vector<int> holders = HoldersOf(inputs.groups, ranks_.size());
  std::vector<int> owners;
  for (const size_t group : parts) owners.push_back(holders[group]);
  parallel::ShardedGradient* const sharded = optimizer_.sharded_gradient();
  at::Tensor on_host;  // A group's gradient, where no device has room for it.
  if (sharded != nullptr) on_host = at::empty({policy_.parameters().numel()}, at::kFloat);
  parallel::OrderedSum sum(ranks_, owners);
  for (const size_t group : parts) {
    if (holders[group] != ranks_.rank()) continue;
    const Work work = WorkOf(refs, [&](size_t other) { return other == group; });
    sharded != nullptr ? void(on_host.zero_()) : policy_.parameters().ZeroGrad();
    for (const Pass& pass : work.passes) {
      if (sharded != nullptr) sharded->ArmOnHost(on_host);
      OXBOW_RETURN_IF_ERROR(RunPass(inputs, work, pass, outcomes));
      if (sharded != nullptr) sharded->FinishOnHost();
    }
    sum.Add(sharded != nullptr ? on_host : policy_.parameters().flat_grad());
  }
  return FinishParts(sum);
}

// The sum becomes the gradient: whole, or this rank's piece of it.
absl::StatusOr<double> RankGradient::FinishParts(parallel::OrderedSum& sum) {
  parallel::ShardedGradient* const sharded = optimizer_.sharded_gradient();
  const int64_t own_begin = sharded != nullptr ? sharded->begin() : 0;
  const at::Tensor held = sharded != nullptr ? sharded->own() : policy_.parameters().flat_grad();
  NormOfPieces norm;
  OXBOW_RETURN_IF_ERROR(
      sum.Finish(policy_.parameters().numel(), [&](int64_t begin, const at::Tensor& piece) {
        norm.Add(piece);
        const int64_t from = std::max(begin, own_begin);
        const int64_t to = std::min(begin + piece.numel(), own_begin + held.numel());
        if (from >= to) return;
        held.narrow(0, from - own_begin, to - from).copy_(piece.narrow(0, from - begin, to - from));
      }));
  return norm.Norm();
}

}  // namespace oxbow::rl
