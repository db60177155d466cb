// SPDX-License-Identifier: Apache-2.0
// One update on several ranks: each computes the gradient of its own samples, the ranks sum it,
// update the weights and tell each other the numbers of their rows.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/parameters.h"
#include "core/model/velocity_model.h"
#include "core/parallel/leaf_buckets.h"
#include "core/parallel/ordered_sum.h"
#include "core/parallel/ranks.h"
#include "core/parallel/sharded_gradient.h"
#include "core/rl/adamw.h"
#include "core/rl/gradient_pass.h"
#include "core/rl/loss_weight.h"

namespace oxbow::rl {

// Every list has the same length on every rank and holds zeros where an item is another rank's: the
// sum over ranks then is the item itself, exactly. Errors as in parallel/ranks.h.
absl::Status ShareWeights(parallel::Ranks& ranks, std::vector<SequenceWeight>& weights);
// Afterwards `stop` says whether it was set on any rank; of ShareOutcomes, too.
absl::Status AgreeToStop(parallel::Ranks& ranks, bool& stop);
absl::Status ShareOutcomes(parallel::Ranks& ranks, std::vector<RowOutcome>& outcomes, bool& stop);

// The rows that all ranks computed.
absl::StatusOr<model::RowCount> SumRowCounts(parallel::Ranks& ranks, const model::RowCount& own);

// From each rank's gradient to the new weights on all of them: sum, norm limit, AdamW.
//
// Three ways to the same numbers. Whole: the gradient is summed in buckets that overlap with the
// backward pass, and every rank updates all weights. Sharded (ZeRO-1): each rank gets only the sum
// of its piece, keeps only the moments of that piece, updates it, and the pieces are gathered; R
// times less memory for moments, nothing overlaps. Sharded with its gradient (ZeRO-2): no rank
// holds a whole gradient either; every backward pass sums its own over ranks, bucket by bucket,
// while it runs.
class RankOptimizer {
 public:
  // `parameters` are trainable; they and `ranks` outlive the optimiser. Without `sums`, gradients
  // come summed (TakeSum).
  struct Options {
    AdamWOptions adamw;
    bool shards = false;
    bool shards_gradient = false;  // Where it shards.
    bool sums = true;
    MomentPlace moments = MomentPlace::kWithWeights;
  };
  RankOptimizer(const Options& options, model::ParameterSet& parameters, parallel::Ranks& ranks);

  // Before the last backward pass of an update, and where a rank has nothing to add to it.
  void Begin();
  // After it: sums the flat gradient over ranks and limits the norm to `norm_max` (0: never).
  // Returns the norm before. Errors as in parallel/ranks.h.
  absl::StatusOr<double> Sum(double norm_max);
  // As Sum, where the gradient already is the sum, with the same bits on every rank, and its norm
  // is known.
  void TakeSum(double norm, double norm_max);

  // Null where every rank holds whole gradients.
  parallel::ShardedGradient* sharded_gradient() { return sharded_gradient_.get(); }

  // The first parameter in whose gradient, or in whose part that this rank holds, a value is not
  // finite; empty: there is none.
  std::string NotFinite() const;
  // Updates the weights by the gradient taken last, on every rank; `rate_factor`, result and what
  // an error leaves behind as in adamw.h. Then `average`, unless null, follows them by EmaDecay
  // with `decay_max`. Of memory that ranks share each writes its part.
  absl::StatusOr<at::Tensor> Step(double rate_factor, model::ParameterSet* average,
                                  double decay_max);

  // Whether each rank has moments for its piece of the weights only.
  bool shards() const { return shards_; }
  // Over all ranks, or whole on each.
  ShardedAdamW& adamw() { return adamw_; }

 private:
  absl::StatusOr<at::Tensor> StepOnHost(double rate_factor, model::ParameterSet* shared_average,
                                        double decay);

  model::ParameterSet& parameters_;
  const bool shards_;
  const std::unique_ptr<parallel::Ranks> alone_ = parallel::MakeSingleRank();
  ShardedAdamW adamw_;
  std::unique_ptr<parallel::GradientBuckets> buckets_;  // Null: nothing is summed whole.
  std::unique_ptr<parallel::ShardedGradient> sharded_gradient_;
};

// Rows [begin, end) of one backward pass.
struct Pass {
  size_t begin, end;
};

// The gradient of an update's rows, summed over the ranks that hold them.
class RankGradient {
 public:
  // All references outlive it.
  RankGradient(const TrainerOptions& options, model::Policy& policy, const Method& method,
               parallel::Ranks& ranks, RankOptimizer& optimizer)
      : options_(options), policy_(policy), method_(method), ranks_(ranks), optimizer_(optimizer) {}

  // Sums the gradient of every rank's rows and limits its norm; returns the norm before. `refs` are
  // the rows of all ranks; fills in the outcomes of this rank's rows. Where deterministic, one
  // gradient per group, added as parallel/ordered_sum.h says: the same bits for every division of
  // the groups among ranks. A single rank asks between passes whether it is interrupted, and
  // returns kCancelled; several ranks agree on that before the first and between updates. Errors as
  // in parallel/ranks.h.
  absl::StatusOr<double> Sum(const UpdateInputs& inputs, const std::vector<RowRef>& refs,
                             std::vector<RowOutcome>& outcomes);

 private:
  // The rows of some groups, and how they are divided into backward passes.
  struct Work {
    std::vector<RowRef> rows;
    std::vector<size_t> places;  // Where the rows are among those of all ranks.
    std::vector<Pass> passes;
  };
  Work WorkOf(const std::vector<RowRef>& refs,
              const std::function<bool(size_t group)>& is_in) const;

  absl::Status SumWhole(const UpdateInputs& inputs, const std::vector<RowRef>& refs,
                        std::vector<RowOutcome>& outcomes);
  absl::Status SumSharded(const UpdateInputs& inputs, const std::vector<RowRef>& refs,
                          std::vector<RowOutcome>& outcomes);
  absl::StatusOr<double> SumInParts(const UpdateInputs& inputs, const std::vector<RowRef>& refs,
                                    std::vector<RowOutcome>& outcomes);
  absl::StatusOr<double> FinishParts(parallel::OrderedSum& sum);
  absl::Status RunPass(const UpdateInputs& inputs, const Work& work, const Pass& pass,
                       std::vector<RowOutcome>& outcomes);

  const TrainerOptions& options_;
  model::Policy& policy_;
  const Method& method_;
  parallel::Ranks& ranks_;
  RankOptimizer& optimizer_;
};

}  // namespace oxbow::rl
