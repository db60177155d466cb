#include "core/rl/row_batch.h"

#include "base/check.h"

namespace oxbow::rl {
namespace {

// Stacks the conditioning of the groups that occur and repeats it by row.
model::Conditioning GatherConditioning(const std::vector<Group>& groups,
                                       const std::vector<RowAddress>& rows) {
  std::vector<at::Tensor> tokens;
  std::vector<at::Tensor> pooled;
  std::vector<int64_t> place(groups.size(), -1);
  std::vector<int64_t> index;
  for (const RowAddress& row : rows) {
    if (place[row.group] < 0) {
      place[row.group] = static_cast<int64_t>(tokens.size());
      tokens.push_back(groups[row.group].conditioning.tokens);
      pooled.push_back(groups[row.group].conditioning.pooled);
    }
    index.push_back(place[row.group]);
  }
  const at::Tensor selection = at::tensor(index, at::kLong);
  return {.tokens = at::cat(tokens).index_select(0, selection),
          .pooled = at::cat(pooled).index_select(0, selection)};
}

}  // namespace

RowBatch GatherRows(const flow::SamplingSpec& spec, const std::vector<Group>& groups,
                    const std::vector<RowAddress>& rows) {
  OXBOW_CHECK(!rows.empty()) << "rows of a forward pass";
  std::vector<at::Tensor> x;
  std::vector<at::Tensor> x_next;
  std::vector<float> sigma;
  RowBatch batch;
  for (const RowAddress& row : rows) {
    const Sample& sample = groups[row.group].samples[row.sample];
    const int64_t at_latent = row.step - sample.first_latent;
    x.push_back(sample.latents[at_latent]);
    x_next.push_back(sample.latents[at_latent + 1]);
    sigma.push_back(static_cast<float>(spec.sigmas[static_cast<size_t>(row.step)]));
    batch.steps.push_back(row.step);
  }
  batch.x = at::stack(x);
  batch.x_next = at::stack(x_next);
  batch.sigma = at::tensor(sigma, at::kFloat);
  batch.conditioning = GatherConditioning(groups, rows);
  return batch;
}

RowBatch SelectRows(const RowBatch& batch, const std::vector<int64_t>& index) {
  const at::Tensor selection = at::tensor(index, at::kLong);
  RowBatch out{.x = batch.x.index_select(0, selection),
               .x_next = batch.x_next.index_select(0, selection),
               .sigma = batch.sigma.index_select(0, selection),
               .conditioning = {.tokens = batch.conditioning.tokens.index_select(0, selection),
                                .pooled = batch.conditioning.pooled.index_select(0, selection)}};
  for (const int64_t i : index) out.steps.push_back(batch.steps[static_cast<size_t>(i)]);
  return out;
}

at::Tensor ScoreRows(const flow::SamplingSpec& spec, const RowBatch& batch, const at::Tensor& v) {
  const auto kernels = flow::GatherKernels(spec, batch.steps);
  return flow::RowLogProb(*kernels, flow::RowMean(*kernels, batch.x, v), batch.x_next);
}

}  // namespace oxbow::rl
