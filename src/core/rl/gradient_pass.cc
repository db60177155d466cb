// SPDX-License-Identifier: Apache-2.0
#include "core/rl/gradient_pass.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "core/model/policy.h"
#include "core/rl/penalties.h"

namespace oxbow::rl {
namespace {

std::vector<int64_t> RowsInKl(const std::vector<RowRef>& refs) {
  std::vector<int64_t> index;
  for (size_t r = 0; r < refs.size(); ++r) {
    if (refs[r].in_kl) index.push_back(static_cast<int64_t>(r));
  }
  return index;
}

// Whether it is the first trained row of its sample.
bool IsFirst(const RowRef& ref) {
  const std::vector<PlannedRow>& rows = ref.trajectory->rows;
  return ref.row == &*std::find_if(rows.begin(), rows.end(),
                                   [](const PlannedRow& row) { return row.trained; });
}

// The places of the samples' first rows. A pass that begins within a sample may have none.
std::vector<size_t> FirstRows(const std::vector<RowRef>& refs) {
  std::vector<size_t> first;
  for (size_t r = 0; r < refs.size(); ++r) {
    if (IsFirst(refs[r])) first.push_back(r);
  }
  return first;
}

std::vector<RowRef> RowsAt(const std::vector<RowRef>& refs, const std::vector<size_t>& places) {
  std::vector<RowRef> chosen;
  for (const size_t place : places) chosen.push_back(refs[place]);
  return chosen;
}

// KL [K] of the rows at `index`, whose velocities `v` [R] holds.
at::Tensor KlOfRows(model::Policy& policy, const Method& method, const std::vector<RowRef>& refs,
                    const RowBatch& batch, const at::Tensor& v, const std::vector<int64_t>& index) {
  const RowBatch chosen = SelectRows(batch, index);
  at::Tensor reference;
  {
    const at::NoGradGuard no_grad;
    reference = policy.reference().Velocity(chosen.x, chosen.sigma, chosen.conditioning);
  }
  std::vector<float> scale;
  for (const int64_t r : index) {
    scale.push_back(static_cast<float>(method.KlScaleOf(*refs[static_cast<size_t>(r)].row)));
  }
  const at::Tensor own = v.index_select(0, at::tensor(index, at::kLong));
  return RowKl(own, reference, at::tensor(scale, at::kFloat));
}

std::vector<double> Values(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  const double* data = host.data_ptr<double>();
  return {data, data + host.numel()};
}

// Notes one number per row; an undefined tensor has none.
void Note(const at::Tensor& values, double RowOutcome::*field, std::vector<RowOutcome>& outcomes) {
  if (!values.defined()) return;
  const std::vector<double> numbers = Values(values);
  for (size_t r = 0; r < outcomes.size(); ++r) outcomes[r].*field = numbers[r];
}

}  // namespace

std::vector<RowOutcome> AddGradient(const TrainerOptions& options, model::Policy& policy,
                                    const Method& method, const UpdateInputs& inputs,
                                    const std::vector<RowRef>& refs) {
  const LossDenominators& denominators = inputs.denominators;
  const RowBatch batch = method.Gather(inputs.step, inputs.groups, refs);
  const at::Tensor v = policy.current().Velocity(batch.x, batch.sigma, batch.conditioning);
  const RowTerms terms = method.Terms(batch, refs, v);
  at::Tensor loss = terms.loss.sum() / denominators.policy;
  if (terms.old_kl.defined()) {
    loss = loss + terms.old_kl.sum() / denominators.policy * options.old_kl_weight;
  }
  std::vector<RowOutcome> outcomes(refs.size());
  const std::vector<int64_t> index = RowsInKl(refs);
  if (options.kl.weight > 0 && !index.empty()) {
    const at::Tensor kl = KlOfRows(policy, method, refs, batch, v, index);
    loss = loss + kl.sum() / denominators.kl * options.kl.weight;
    const std::vector<double> values = Values(kl);
    for (size_t i = 0; i < index.size(); ++i) {
      outcomes[static_cast<size_t>(index[i])].kl = values[i];
    }
  }
  const std::vector<size_t> first =
      options.anchor.weight > 0 ? FirstRows(refs) : std::vector<size_t>();
  if (!first.empty()) {
    const at::Tensor pull =
        AnchorPull(options.anchor, options.run_seed, policy, inputs.groups, RowsAt(refs, first));
    loss = loss + pull.sum() / denominators.trajectories * options.anchor.weight;
    const std::vector<double> values = Values(pull);
    for (size_t i = 0; i < first.size(); ++i) outcomes[first[i]].anchor = values[i];
  }
  loss.backward();
  Note(terms.log_ratio, &RowOutcome::log_ratio, outcomes);
  Note(terms.loss, &RowOutcome::policy_loss, outcomes);
  Note(terms.old_kl, &RowOutcome::old_kl, outcomes);
  for (size_t r = 0; r < refs.size(); ++r) {
    outcomes[r].centre_error = static_cast<double>(refs[r].row->log_prob_old) -
                               static_cast<double>(refs[r].row->log_prob_behaviour);
  }
  return outcomes;
}

}  // namespace oxbow::rl
