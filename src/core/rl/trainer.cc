#include "core/rl/trainer.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/philox.h"
#include "base/status_macros.h"
#include "core/model/policy.h"
#include "core/parallel/ranks.h"
#include "core/rl/adamw.h"
#include "core/rl/objective.h"
#include "core/rl/row_batch.h"
#include "core/rl/step_plan.h"
#include "core/rl/step_report.h"

namespace oxbow::rl {
namespace {

// Rows of one no-gradient forward; bounds its memory.
constexpr size_t kRowsPerPass = 256;

// A row of the plan together with its address.
struct RowRef {
  RowAddress address;
  PlannedSample* sample;
  PlannedRow* row;
};

std::vector<RowAddress> AddressesOf(const std::vector<RowRef>& refs) {
  std::vector<RowAddress> addresses;
  for (const RowRef& ref : refs) addresses.push_back(ref.address);
  return addresses;
}

void AppendRows(PlannedSample& sample, std::vector<RowRef>& refs) {
  for (PlannedRow& row : sample.rows) {
    refs.push_back({{sample.group, sample.sample, row.step}, &sample, &row});
  }
}

// What the updates of one step add up.
struct Totals {
  double loss = 0;
  double policy_loss = 0;
  double kl_loss = 0;
  double grad_norm = 0;
  int updates = 0;  // Those that moved the weights.
  RatioStatistics ratios;
  std::optional<double> onpolicy_error;  // Unset: the first update had no fresh on-policy row.
};

at::Tensor Column(const std::vector<RowRef>& refs, float (*value)(const RowRef&)) {
  std::vector<float> values;
  values.reserve(refs.size());
  for (const RowRef& ref : refs) values.push_back(value(ref));
  return at::tensor(values, at::kFloat);
}

}  // namespace

struct Trainer::Impl {
  Impl(TrainerOptions o, model::Policy& p, parallel::Ranks& r)
      : options(std::move(o)),
        policy(p),
        ranks(r),
        optimizer({.learning_rate = options.learning_rate,
                   .beta1 = options.beta1,
                   .beta2 = options.beta2,
                   .epsilon = options.epsilon,
                   .weight_decay = options.weight_decay,
                   .warmup_updates = options.warmup_updates},
                  policy.parameters().flat()) {}

  // Tensors as they were before a step, to put back when it fails.
  struct Before {
    at::Tensor weights;
    at::Tensor average;
    at::Tensor first_moment;
    at::Tensor second_moment;
    int64_t updates;
    uint64_t version;
  };
  Before Remember();
  void PutBack(const Before& before);

  void ScoreUnderOldPolicy(StepPlan& plan, const std::vector<Group>& groups);
  std::vector<SequenceWeight> WeighSamples(StepPlan& plan, const std::vector<Group>& groups,
                                           StepResult& result);
  absl::Status RunUpdates(LearnerStep step, StepPlan& plan, const std::vector<Group>& groups,
                          Totals& totals);
  absl::Status Update(LearnerStep step, size_t update, double samples_per_update, StepPlan& plan,
                      const std::vector<Group>& groups, Totals& totals);
  at::Tensor KlSum(LearnerStep step, size_t update, double samples_per_update,
                   const std::vector<RowRef>& refs, const RowBatch& batch, const at::Tensor& v,
                   int trained_steps);
  void CountRatios(size_t update, const std::vector<RowRef>& refs, const at::Tensor& lp_new,
                   Totals& totals) const;
  absl::Status CheckFinite(LearnerStep step, double loss, double grad_norm);

  const TrainerOptions options;
  model::Policy& policy;
  parallel::Ranks& ranks;
  AdamW optimizer;
  uint64_t version = 0;
};

Trainer::Impl::Before Trainer::Impl::Remember() {
  return {.weights = policy.parameters().flat().detach().clone(),
          .average =
              options.ema_enabled ? policy.ema_parameters().flat().detach().clone() : at::Tensor(),
          .first_moment = optimizer.first_moment().clone(),
          .second_moment = optimizer.second_moment().clone(),
          .updates = optimizer.updates(),
          .version = version};
}

void Trainer::Impl::PutBack(const Before& before) {
  const at::NoGradGuard no_grad;
  policy.parameters().flat().copy_(before.weights);
  if (options.ema_enabled) policy.ema_parameters().flat().copy_(before.average);
  optimizer.Restore(before.first_moment, before.second_moment, before.updates);
  version = before.version;
}

// lp under pi_old of every transition another policy drew. Must come before the first update: after
// it pi_old exists no more.
void Trainer::Impl::ScoreUnderOldPolicy(StepPlan& plan, const std::vector<Group>& groups) {
  const at::NoGradGuard no_grad;
  std::vector<RowRef> wanted;
  for (PlannedSample& sample : plan.samples) AppendRows(sample, wanted);
  std::erase_if(wanted, [](const RowRef& ref) { return !ref.row->needs_old; });
  for (size_t begin = 0; begin < wanted.size(); begin += kRowsPerPass) {
    const size_t end = std::min(begin + kRowsPerPass, wanted.size());
    const std::vector<RowRef> part(wanted.begin() + static_cast<std::ptrdiff_t>(begin),
                                   wanted.begin() + static_cast<std::ptrdiff_t>(end));
    const RowBatch batch = GatherRows(options.sampling, groups, AddressesOf(part));
    const at::Tensor v = policy.current().Velocity(batch.x, batch.sigma, batch.conditioning);
    const at::Tensor scores = ScoreRows(options.sampling, batch, v).to(at::kCPU).contiguous();
    const float* value = scores.data_ptr<float>();
    for (const RowRef& ref : part) ref.row->log_prob_old = *value++;
  }
}

// A rejected sample stays in the denominator; its rows are not trained.
std::vector<SequenceWeight> Trainer::Impl::WeighSamples(StepPlan& plan,
                                                        const std::vector<Group>& groups,
                                                        StepResult& result) {
  const WeightOptions weight_options{.scale = options.weight_scale,
                                     .geometric = options.weight_geometric,
                                     .cap = options.weight_cap,
                                     .floor = options.weight_floor,
                                     .log_clamp = options.weight_log_clamp};
  std::vector<SequenceWeight> weights;
  for (PlannedSample& planned : plan.samples) {
    const Sample& sample = groups[planned.group].samples[planned.sample];
    if (planned.weighted) {
      std::vector<double> old;
      std::vector<double> behaviour;
      for (const PlannedRow& row : planned.rows) {
        if (!row.in_weight) continue;
        old.push_back(row.log_prob_old);
        behaviour.push_back(row.log_prob_behaviour);
      }
      const int64_t dims = sample.latents[0].numel();
      weights.push_back(ComputeSequenceWeight(old, behaviour, dims, weight_options));
      planned.weight = weights.back().weight;
      if (weights.back().evict && sample.replayed) result.evict.push_back(sample.entry_id);
    }
    if (sample.replayed && planned.weight > 0) result.used.push_back(sample.entry_id);
  }
  return weights;
}

// The KL term over the rows of one update, divided: all rows, or one random trained step per
// sample. Not multiplied by W, which would weaken the pull where the policy has moved most.
at::Tensor Trainer::Impl::KlSum(LearnerStep step, size_t update, double samples_per_update,
                                const std::vector<RowRef>& refs, const RowBatch& batch,
                                const at::Tensor& v, int trained_steps) {
  RandomStream stream({.seed = options.run_seed,
                       .group = step.value,
                       .sample = static_cast<uint32_t>(update),
                       .step = kTrainingTime});
  std::vector<int64_t> index;
  for (size_t r = 0; r < refs.size();) {
    const size_t count = refs[r].sample->rows.size();
    if (options.kl_all_steps) {
      for (size_t i = 0; i < count; ++i) index.push_back(static_cast<int64_t>(r + i));
    } else {
      index.push_back(static_cast<int64_t>(r + stream.NextBelow(count)));
    }
    r += count;
  }
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
  const double denominator = samples_per_update * (options.kl_all_steps ? trained_steps : 1);
  return RowKl(own, reference, at::tensor(scale, at::kFloat)).sum() / denominator;
}

void Trainer::Impl::CountRatios(size_t update, const std::vector<RowRef>& refs,
                                const at::Tensor& lp_new, Totals& totals) const {
  const at::Tensor scores = lp_new.detach().to(at::kCPU).contiguous();
  const float* score = scores.data_ptr<float>();
  for (const RowRef& ref : refs) {
    const double log_ratio = static_cast<double>(*score++) - ref.row->log_prob_old;
    totals.ratios.Add(ref.sample->origin, log_ratio, ref.sample->advantage, options.clip_range);
    if (update == 0 && ref.sample->origin == Origin::kFresh && ref.row->on_policy) {
      const double error = std::abs(std::expm1(log_ratio));
      totals.onpolicy_error = std::max(totals.onpolicy_error.value_or(0), error);
    }
  }
}

absl::Status Trainer::Impl::CheckFinite(LearnerStep step, double loss, double grad_norm) {
  if (!std::isfinite(loss)) {
    return absl::InternalError(absl::StrCat("loss is not finite at learner step ", step.value));
  }
  if (std::isfinite(grad_norm)) return absl::OkStatus();
  for (const auto& [name, tensor] : policy.parameters().tensors()) {
    if (tensor.grad().isfinite().all().item<bool>()) continue;
    return absl::InternalError(
        absl::StrCat("gradient of ", name, " is not finite at learner step ", step.value));
  }
  return absl::InternalError(
      absl::StrCat("gradient norm is not finite at learner step ", step.value));
}

// One forward over all rows of the update, one backward, one optimiser step.
absl::Status Trainer::Impl::Update(LearnerStep step, size_t update, double samples_per_update,
                                   StepPlan& plan, const std::vector<Group>& groups,
                                   Totals& totals) {
  std::vector<RowRef> refs;
  for (const size_t s : plan.updates[update]) {
    if (plan.samples[s].weight > 0) AppendRows(plan.samples[s], refs);
  }
  at::Tensor rows = at::full({1}, static_cast<double>(refs.size()), at::kDouble);
  OXBOW_RETURN_IF_ERROR(ranks.AllReduceSum(rows));
  if (rows.item<double>() == 0) return absl::OkStatus();

  policy.parameters().ZeroGrad();
  double loss_value = 0;
  if (!refs.empty()) {
    const RowBatch batch = GatherRows(options.sampling, groups, AddressesOf(refs));
    const at::Tensor v = policy.current().Velocity(batch.x, batch.sigma, batch.conditioning);
    const at::Tensor lp_new = ScoreRows(options.sampling, batch, v);
    const at::Tensor row_loss = ClippedLoss(
        lp_new, Column(refs, [](const RowRef& r) { return r.row->log_prob_old; }),
        Column(refs, [](const RowRef& r) { return static_cast<float>(r.sample->advantage); }),
        Column(refs, [](const RowRef& r) { return static_cast<float>(r.sample->weight); }),
        options.clip_range);
    at::Tensor loss = row_loss.sum() / (samples_per_update * plan.trained_steps);
    totals.policy_loss += loss.item<double>();
    if (options.kl_weight > 0) {
      const at::Tensor kl =
          KlSum(step, update, samples_per_update, refs, batch, v, plan.trained_steps);
      totals.kl_loss += kl.item<double>();
      loss = loss + kl * options.kl_weight;
    }
    loss_value = loss.item<double>();
    loss.backward();
    CountRatios(update, refs, lp_new, totals);
  }
  at::Tensor& grad = policy.parameters().flat_grad();
  OXBOW_RETURN_IF_ERROR(ranks.AllReduceSum(grad));
  const double norm = ClipGradNorm(grad, options.grad_norm_max);
  OXBOW_RETURN_IF_ERROR(CheckFinite(step, loss_value, norm));
  optimizer.Step(policy.parameters().flat(), grad);
  if (options.ema_enabled) {
    UpdateEma(policy.ema_parameters().flat(), policy.parameters().flat(),
              EmaDecay(optimizer.updates(), options.ema_decay_max));
  }
  totals.loss += loss_value;
  totals.grad_norm += norm;
  ++totals.updates;
  return absl::OkStatus();
}

absl::Status Trainer::Impl::RunUpdates(LearnerStep step, StepPlan& plan,
                                       const std::vector<Group>& groups, Totals& totals) {
  at::Tensor counted = at::full({1}, static_cast<double>(plan.samples_counted), at::kDouble);
  OXBOW_RETURN_IF_ERROR(ranks.AllReduceSum(counted));
  const double samples_per_update = counted.item<double>() / options.updates;
  for (size_t update = 0; update < plan.updates.size(); ++update) {
    OXBOW_RETURN_IF_ERROR(Update(step, update, samples_per_update, plan, groups, totals));
    ++version;
  }
  return absl::OkStatus();
}

Trainer::Trainer(TrainerOptions options, model::Policy& policy, parallel::Ranks& ranks)
    : impl_(std::make_unique<Impl>(std::move(options), policy, ranks)) {
  OXBOW_CHECK(impl_->options.updates >= 1) << "updates " << impl_->options.updates;
}

Trainer::~Trainer() = default;

absl::StatusOr<StepResult> Trainer::Step(LearnerStep step, const std::vector<Group>& groups) {
  Impl& impl = *impl_;
  StepResult result;
  StepPlan plan = PlanStep(impl.options, step, version(), groups);
  impl.ScoreUnderOldPolicy(plan, groups);
  const std::vector<SequenceWeight> weights = impl.WeighSamples(plan, groups, result);
  AppendPlanMetrics(impl.options, version(), groups, plan, result.metrics);
  AppendWeightMetrics(weights, result.metrics);

  const Impl::Before before = impl.Remember();
  result.metrics["train/lr"] = impl.optimizer.learning_rate();
  Totals totals;
  if (absl::Status status = impl.RunUpdates(step, plan, groups, totals); !status.ok()) {
    impl.PutBack(before);
    return status;
  }
  const double updates = std::max(1, totals.updates);
  result.metrics["train/loss"] = totals.loss / updates;
  result.metrics["train/policy_loss"] = totals.policy_loss / updates;
  result.metrics["train/kl_div"] = totals.kl_loss / updates;
  result.metrics["train/kl_loss"] = impl.options.kl_weight * totals.kl_loss / updates;
  result.metrics["train/grad_norm"] = totals.grad_norm / updates;
  result.metrics["train/update_norm"] =
      (impl.policy.parameters().flat().detach() - before.weights).norm().item<double>();
  totals.ratios.AppendMetrics(result.metrics);
  if (totals.onpolicy_error) result.metrics["train/onpolicy_ratio_err"] = *totals.onpolicy_error;
  return result;
}

PolicyVersion Trainer::version() const { return PolicyVersion(impl_->version); }

std::map<std::string, at::Tensor> Trainer::State() const {
  return {{"adamw.first_moment", impl_->optimizer.first_moment().clone()},
          {"adamw.second_moment", impl_->optimizer.second_moment().clone()},
          {"counters", at::tensor(std::vector<int64_t>{static_cast<int64_t>(impl_->version),
                                                       impl_->optimizer.updates()},
                                  at::kLong)}};
}

absl::Status Trainer::LoadState(const std::map<std::string, at::Tensor>& state) {
  const at::IntArrayRef moments = impl_->optimizer.first_moment().sizes();
  const std::vector<int64_t> two = {2};
  for (const auto& [name, shape] :
       {std::pair<std::string, at::IntArrayRef>{"adamw.first_moment", moments},
        {"adamw.second_moment", moments},
        {"counters", two}}) {
    const auto found = state.find(name);
    if (found == state.end()) {
      return absl::InvalidArgumentError(absl::StrCat("trainer state lacks ", name));
    }
    if (found->second.sizes() != shape) {
      return absl::InvalidArgumentError(absl::StrCat("trainer state has another shape at ", name,
                                                     ": ", found->second.numel(), " values"));
    }
  }
  const at::Tensor counters = state.at("counters").to(at::kLong);
  impl_->optimizer.Restore(state.at("adamw.first_moment"), state.at("adamw.second_moment"),
                           counters[1].item<int64_t>());
  impl_->version = static_cast<uint64_t>(counters[0].item<int64_t>());
  return absl::OkStatus();
}

}  // namespace oxbow::rl
