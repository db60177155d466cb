// From each rank's gradient to the new weights on all of them: sum, norm limit, AdamW.
//
// Two ways to the same numbers. Whole: the gradient is summed in buckets that overlap with the
// backward pass, and every rank updates all weights. Sharded: each rank gets the sum of its piece
// alone, keeps the moments of that piece alone, updates it, and pieces are gathered; R times less
// memory for moments, nothing overlaps.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "core/model/parameters.h"
#include "core/parallel/gradient_buckets.h"
#include "core/parallel/ranks.h"
#include "core/rl/sharded_adamw.h"

namespace oxbow::rl {

class RankOptimizer {
 public:
  // `parameters` are trainable; they and `ranks` outlive the optimiser. Without `sums`, gradients
  // come summed (TakeSum).
  RankOptimizer(const AdamWOptions& options, bool shards, bool sums,
                model::ParameterSet& parameters, parallel::Ranks& ranks);

  // Before the last backward pass of an update, and where a rank has nothing to add to it.
  void Begin();
  // After it: sums the flat gradient over ranks and limits the norm to `norm_max` (0: never).
  // Returns the norm before. Errors as in parallel/ranks.h.
  absl::StatusOr<double> Sum(double norm_max);
  // The flat gradient is the sum already, with the same bits on every rank. Else as Sum.
  double TakeSum(double norm_max);
  // Updates the weights by the gradient taken last, on every rank; `rate_factor` as in adamw.h.
  absl::Status Step(double rate_factor = 1);

  double learning_rate() const { return adamw_.learning_rate(); }
  int64_t updates() const { return adamw_.updates(); }

  // What this rank holds, to put back when a step fails.
  AdamWState Piece() const { return adamw_.Piece(); }
  void RestorePiece(const AdamWState& piece) { adamw_.RestorePiece(piece); }
  // The whole state, for a checkpoint that any number of ranks can load. Collective where sharded.
  absl::StatusOr<AdamWState> Gather() { return adamw_.Gather(); }
  void Restore(const AdamWState& state) { adamw_.Restore(state); }

 private:
  model::ParameterSet& parameters_;
  const bool shards_;
  const std::unique_ptr<parallel::Ranks> alone_ = parallel::MakeSingleRank();
  ShardedAdamW adamw_;                                  // Over all ranks, or whole on each.
  std::unique_ptr<parallel::GradientBuckets> buckets_;  // Null: nothing is summed whole.
};

}  // namespace oxbow::rl
