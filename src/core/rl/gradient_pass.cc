#include "core/rl/gradient_pass.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/model/policy.h"
#include "core/rl/kl.h"
#include "core/rl/objective.h"

namespace oxbow::rl {
namespace {

at::Tensor Column(const std::vector<RowRef>& refs, float (*value)(const RowRef&)) {
  std::vector<float> values;
  values.reserve(refs.size());
  for (const RowRef& ref : refs) values.push_back(value(ref));
  return at::tensor(values, at::kFloat);
}

// [R]: what log-ratios are multiplied by. Log-probs are densities; CPS has its ratios on another
// scale.
at::Tensor RatioScales(const TrainerOptions& options, const std::vector<int>& steps) {
  std::vector<float> scales;
  const bool surrogate =
      options.cps_surrogate && options.sampling.dynamics == flow::DynamicsKind::kCps;
  for (const int i : steps) {
    const double scale =
        surrogate ? flow::CpsSurrogateScale(flow::KernelAt(options.sampling, i)) : 1;
    scales.push_back(static_cast<float>(scale));
  }
  return at::tensor(scales, at::kFloat);
}

std::vector<int64_t> RowsInKl(const std::vector<RowRef>& refs) {
  std::vector<int64_t> index;
  for (size_t r = 0; r < refs.size(); ++r) {
    if (refs[r].in_kl) index.push_back(static_cast<int64_t>(r));
  }
  return index;
}

// KL [K] of the rows at `index`, whose velocities `v` [R] holds.
at::Tensor KlOfRows(const TrainerOptions& options, model::Policy& policy, const RowBatch& batch,
                    const at::Tensor& v, const std::vector<int64_t>& index) {
  const RowBatch chosen = SelectRows(batch, index);
  at::Tensor reference;
  {
    const at::NoGradGuard no_grad;
    reference = policy.reference().Velocity(chosen.x, chosen.sigma, chosen.conditioning);
  }
  std::vector<float> scale;
  for (const int i : chosen.steps) {
    scale.push_back(
        static_cast<float>(KlScale(options.kl_space, flow::KernelAt(options.sampling, i))));
  }
  const at::Tensor own = v.index_select(0, at::tensor(index, at::kLong));
  return RowKl(own, reference, at::tensor(scale, at::kFloat));
}

std::vector<double> Values(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  const double* data = host.data_ptr<double>();
  return {data, data + host.numel()};
}

}  // namespace

std::vector<RowAddress> AddressesOf(const std::vector<RowRef>& refs) {
  std::vector<RowAddress> addresses;
  addresses.reserve(refs.size());
  for (const RowRef& ref : refs) addresses.push_back(ref.address);
  return addresses;
}

std::vector<RowOutcome> AddGradient(const TrainerOptions& options, model::Policy& policy,
                                    const std::vector<Group>& groups,
                                    const std::vector<RowRef>& refs,
                                    const LossDenominators& denominators) {
  const RowBatch batch = GatherRows(options.sampling, groups, AddressesOf(refs));
  const at::Tensor v = policy.current().Velocity(batch.x, batch.sigma, batch.conditioning);
  const at::Tensor log_prob = ScoreRows(options.sampling, batch, v);
  const at::Tensor scale = RatioScales(options, batch.steps);
  const at::Tensor policy_loss = ClippedLoss(
      log_prob * scale, Column(refs, [](const RowRef& r) { return r.row->log_prob_old; }) * scale,
      Column(refs, [](const RowRef& r) { return static_cast<float>(r.sample->advantage); }),
      Column(refs, [](const RowRef& r) { return static_cast<float>(r.sample->weight); }),
      options.clip_range);
  at::Tensor loss = policy_loss.sum() / denominators.policy;

  std::vector<RowOutcome> outcomes(refs.size());
  if (options.kl_weight > 0) {
    const std::vector<int64_t> index = RowsInKl(refs);
    if (!index.empty()) {
      const at::Tensor kl = KlOfRows(options, policy, batch, v, index);
      loss = loss + kl.sum() / denominators.kl * options.kl_weight;
      const std::vector<double> values = Values(kl);
      for (size_t i = 0; i < index.size(); ++i) {
        outcomes[static_cast<size_t>(index[i])].kl = values[i];
      }
    }
  }
  loss.backward();
  const std::vector<double> scores = Values(log_prob);
  const std::vector<double> losses = Values(policy_loss);
  const std::vector<double> scales = Values(scale);
  for (size_t r = 0; r < refs.size(); ++r) {
    outcomes[r].log_ratio = (scores[r] - refs[r].row->log_prob_old) * scales[r];
    outcomes[r].policy_loss = losses[r];
  }
  return outcomes;
}

}  // namespace oxbow::rl
