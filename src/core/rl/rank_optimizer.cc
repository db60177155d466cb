#include "core/rl/rank_optimizer.h"

#include <ATen/ATen.h>

#include <vector>

#include "base/status_macros.h"

namespace oxbow::rl {

RankOptimizer::RankOptimizer(const AdamWOptions& options, bool shards, bool sums,
                             model::ParameterSet& parameters, parallel::Ranks& ranks)
    : parameters_(parameters),
      shards_(shards && ranks.size() > 1),
      adamw_(options, parameters.flat(), shards_ ? ranks : *alone_) {
  if (ranks.size() == 1 || shards_ || !sums) return;
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

absl::Status RankOptimizer::Step(double rate_factor) {
  return adamw_.Step(parameters_.flat(), rate_factor);
}

}  // namespace oxbow::rl
