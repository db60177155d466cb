#include "core/rl/rank_gradient.h"

#include <ATen/ATen.h>

#include <set>

#include "base/status_macros.h"
#include "core/model/policy.h"
#include "core/parallel/ordered_sum.h"
#include "core/parallel/ranks.h"

namespace oxbow::rl {

namespace {

// Rows [begin, end) of one backward pass.
struct Pass {
  size_t begin, end;
};

// Whole samples, at least one and at most `rows_max` rows; 0: all at once. Rows of a sample are
// neighbours.
std::vector<Pass> PassesOf(const std::vector<RowRef>& refs, size_t rows_max) {
  std::vector<Pass> passes;
  for (size_t begin = 0, end = 0; begin < refs.size(); begin = end) {
    const auto sample_end = [&](size_t r) {
      while (r < refs.size() && refs[r].sample == refs[end].sample) ++r;
      return r;
    };
    do {
      const size_t next = sample_end(end);
      if (end > begin && rows_max > 0 && next - begin > rows_max) break;
      end = next;
    } while (end < refs.size());
    passes.push_back({begin, end});
  }
  return passes;
}

}  // namespace

// Adds the gradient of the rows of groups `part` and notes their outcomes. `before_last` is called
// once, before the last backward pass or where there is none.
void RankGradient::AddPart(const std::vector<RowRef>& refs, parallel::Share part,
                           const std::vector<Group>& groups, const LossDenominators& denominators,
                           const std::function<void()>& before_last,
                           std::vector<RowOutcome>& outcomes) {
  std::vector<RowRef> chosen;
  std::vector<size_t> places;
  for (size_t r = 0; r < refs.size(); ++r) {
    if (!part.Has(refs[r].address.group)) continue;
    chosen.push_back(refs[r]);
    places.push_back(r);
  }
  if (chosen.empty()) before_last();
  for (const Pass& pass : PassesOf(chosen, static_cast<size_t>(options_.rows_per_pass))) {
    if (pass.end == chosen.size()) before_last();
    const std::vector<RowRef> rows(chosen.begin() + static_cast<ptrdiff_t>(pass.begin),
                                   chosen.begin() + static_cast<ptrdiff_t>(pass.end));
    const std::vector<RowOutcome> brought =
        AddGradient(options_, policy_, method_, groups, rows, denominators);
    for (size_t i = 0; i < brought.size(); ++i) outcomes[places[pass.begin + i]] = brought[i];
  }
}

absl::StatusOr<double> RankGradient::Sum(const std::vector<RowRef>& refs,
                                         const std::vector<Group>& groups,
                                         const LossDenominators& denominators,
                                         std::vector<RowOutcome>& outcomes) {
  if (options_.deterministic) {
    OXBOW_RETURN_IF_ERROR(SumInParts(refs, groups, denominators, outcomes));
    return optimizer_.TakeSum(options_.grad_norm_max);
  }
  policy_.parameters().ZeroGrad();
  AddPart(
      refs, parallel::ShareOf(groups.size(), ranks_.rank(), ranks_.size()), groups, denominators,
      [this] { optimizer_.Begin(); }, outcomes);
  return optimizer_.Sum(options_.grad_norm_max);
}

absl::Status RankGradient::SumInParts(const std::vector<RowRef>& refs,
                                      const std::vector<Group>& groups,
                                      const LossDenominators& denominators,
                                      std::vector<RowOutcome>& outcomes) {
  std::set<size_t> parts;
  for (const RowRef& ref : refs) parts.insert(ref.address.group);
  at::Tensor& grad = policy_.parameters().flat_grad();
  std::vector<int> owners;
  std::vector<at::Tensor> mine;
  for (const size_t group : parts) {
    owners.push_back(parallel::OwnerOf(group, groups.size(), ranks_.size()));
    if (owners.back() != ranks_.rank()) continue;
    policy_.parameters().ZeroGrad();
    AddPart(
        refs, {group, group + 1}, groups, denominators, [] {}, outcomes);
    mine.push_back(grad.clone());
  }
  const at::Tensor held =
      mine.empty() ? at::empty({0, grad.numel()}, grad.options()) : at::stack(mine);
  return parallel::SumInOrder(ranks_, owners, held, grad);
}

}  // namespace oxbow::rl
