// The gradient of an update's rows, summed over the ranks that hold them.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/parallel/share.h"
#include "core/rl/gradient_pass.h"
#include "core/rl/rank_optimizer.h"

namespace oxbow::rl {

class RankGradient {
 public:
  // All references outlive it.
  RankGradient(const TrainerOptions& options, model::Policy& policy, const Method& method,
               parallel::Ranks& ranks, RankOptimizer& optimizer)
      : options_(options), policy_(policy), method_(method), ranks_(ranks), optimizer_(optimizer) {}

  // Sums the gradient of every rank's rows and limits its norm; returns the norm before. `refs` are
  // the rows of all ranks; notes the outcomes of this rank's. Where deterministic, one gradient per
  // group, added in the order of groups: the same bits whoever computes which. Errors as in
  // parallel/ranks.h.
  absl::StatusOr<double> Sum(const std::vector<RowRef>& refs, const std::vector<Group>& groups,
                             const LossDenominators& denominators,
                             std::vector<RowOutcome>& outcomes);

 private:
  absl::Status SumInParts(const std::vector<RowRef>& refs, const std::vector<Group>& groups,
                          const LossDenominators& denominators, std::vector<RowOutcome>& outcomes);
  void AddPart(const std::vector<RowRef>& refs, parallel::Share part,
               const std::vector<Group>& groups, const LossDenominators& denominators,
               const std::function<void()>& before_last, std::vector<RowOutcome>& outcomes);

  const TrainerOptions& options_;
  model::Policy& policy_;
  const Method& method_;
  parallel::Ranks& ranks_;
  RankOptimizer& optimizer_;
};

}  // namespace oxbow::rl
