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
std::vector<int64_t> FirstRows(const std::vector<RowRef>& refs) {
  std::vector<int64_t> first;
  for (size_t r = 0; r < refs.size(); ++r) {
    if (IsFirst(refs[r])) first.push_back(static_cast<int64_t>(r));
  }
  return first;
}

std::vector<RowRef> RowsAt(const std::vector<RowRef>& refs, const std::vector<int64_t>& index) {
  std::vector<RowRef> chosen;
  for (const int64_t r : index) chosen.push_back(refs[static_cast<size_t>(r)]);
  return chosen;
}

// The KL [K] of the rows at `index`, of `method`'s scale: to the reference, and to the policy
// before the step. Undefined where nothing pulls there.
struct KlTerms {
  at::Tensor reference;
  at::Tensor precedent;
};

KlTerms KlOfRows(const KlOptions& options, model::Policy& policy, const Method& method,
                 const std::vector<RowRef>& refs, const RowBatch& batch, const at::Tensor& v,
                 const std::vector<int64_t>& index) {
  const std::vector<RowRef> chosen_refs = RowsAt(refs, index);
  std::vector<float> scale;
  for (const RowRef& ref : chosen_refs) {
    scale.push_back(static_cast<float>(method.KlScaleOf(*ref.row)));
  }
  const at::Tensor scales = at::tensor(scale, at::kFloat);
  const at::Tensor own = v.index_select(0, at::tensor(index, at::kLong));
  KlTerms terms;
  if (options.pulls_to_reference()) {
    const RowBatch chosen = SelectRows(batch, index);
    at::Tensor reference;
    {
      const at::NoGradGuard no_grad;
      reference = policy.reference().Velocity(chosen.x, chosen.sigma, chosen.conditioning);
    }
    terms.reference = RowKl(own, reference, scales);
  }
  if (options.pulls_to_precedent()) {
    terms.precedent = RowKl(own, method.VelocityBeforeStep(chosen_refs, own), scales);
  }
  return terms;
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

// The same for the rows at `index`.
void NoteAt(const std::vector<int64_t>& index, const at::Tensor& values, double RowOutcome::*field,
            std::vector<RowOutcome>& outcomes) {
  if (!values.defined()) return;
  const std::vector<double> numbers = Values(values);
  for (size_t i = 0; i < index.size(); ++i) {
    outcomes[static_cast<size_t>(index[i])].*field = numbers[i];
  }
}

// Later updates compare with what the first one did.
void KeepCentres(const at::Tensor& centre, const std::vector<RowRef>& refs) {
  if (!centre.defined()) return;
  const std::vector<double> values = Values(centre);
  for (size_t r = 0; r < refs.size(); ++r) {
    refs[r].row->log_prob_old = static_cast<float>(values[r]);
    refs[r].row->old_in_pass = false;
  }
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
  const KlOptions pull = options.KlAt(inputs.step.value);
  if (pull.weight > 0 && !index.empty()) {
    const KlTerms kl = KlOfRows(pull, policy, method, refs, batch, v, index);
    if (kl.reference.defined()) {
      loss = loss + kl.reference.sum() / denominators.kl * (pull.weight * (1 - pull.precedent));
    }
    if (kl.precedent.defined()) {
      loss = loss + kl.precedent.sum() / denominators.kl * (pull.weight * pull.precedent);
    }
    NoteAt(index, kl.reference, &RowOutcome::kl, outcomes);
    NoteAt(index, kl.precedent, &RowOutcome::kl_precedent, outcomes);
  }
  const std::vector<int64_t> first =
      options.anchor.weight > 0 ? FirstRows(refs) : std::vector<int64_t>();
  if (!first.empty()) {
    const at::Tensor anchor =
        AnchorPull(options.anchor, options.run_seed, policy, inputs.groups, RowsAt(refs, first));
    loss = loss + anchor.sum() / denominators.trajectories * options.anchor.weight;
    NoteAt(first, anchor, &RowOutcome::anchor, outcomes);
  }
  loss.backward();
  Note(terms.log_ratio, &RowOutcome::log_ratio, outcomes);
  Note(terms.loss, &RowOutcome::policy_loss, outcomes);
  Note(terms.old_kl, &RowOutcome::old_kl, outcomes);
  Note(terms.surrogate, &RowOutcome::surrogate, outcomes);
  KeepCentres(terms.centre, refs);
  for (size_t r = 0; r < refs.size(); ++r) {
    outcomes[r].centre_error = static_cast<double>(refs[r].row->log_prob_old) -
                               static_cast<double>(refs[r].row->log_prob_behaviour);
  }
  return outcomes;
}

}  // namespace oxbow::rl
