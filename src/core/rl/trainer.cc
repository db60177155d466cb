#include "core/rl/trainer.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/philox.h"
#include "base/status_macros.h"
#include "core/model/policy.h"
#include "core/parallel/ordered_sum.h"
#include "core/parallel/parameter_agreement.h"
#include "core/parallel/ranks.h"
#include "core/parallel/share.h"
#include "core/rl/adamw.h"
#include "core/rl/gradient_pass.h"
#include "core/rl/rank_exchange.h"
#include "core/rl/rank_optimizer.h"
#include "core/rl/row_batch.h"
#include "core/rl/step_plan.h"
#include "core/rl/step_report.h"

namespace oxbow::rl {
namespace {

// Rows of one no-gradient forward; bounds its memory.
constexpr size_t kRowsPerPass = 256;

void AppendRows(PlannedSample& sample, std::vector<RowRef>& refs) {
  for (PlannedRow& row : sample.rows) {
    refs.push_back(
        {.address = {sample.group, sample.sample, row.step}, .sample = &sample, .row = &row});
  }
}

// What the updates of one step add up.
struct Totals {
  double policy_loss = 0;
  double kl_loss = 0;
  double grad_norm = 0;
  int updates = 0;  // Those that moved the weights.
  RatioStatistics ratios;
  std::optional<double> onpolicy_error;  // Unset: the first update had no fresh on-policy row.
};

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
                  options.shard_optimizer, /*sums=*/!options.deterministic, policy.parameters(),
                  ranks) {}

  // Tensors as they were before a step, to put back when it fails.
  struct Before {
    at::Tensor weights;
    at::Tensor average;
    AdamWState optimizer;
    uint64_t version;
  };
  Before Remember();
  void PutBack(const Before& before);

  // The groups whose latents this rank holds.
  parallel::Share OwnGroups(const std::vector<Group>& groups) const {
    return parallel::ShareOf(groups.size(), ranks.rank(), ranks.size());
  }
  void ScoreUnderOldPolicy(StepPlan& plan, const std::vector<Group>& groups);
  absl::StatusOr<std::vector<SequenceWeight>> WeighSamples(StepPlan& plan,
                                                           const std::vector<Group>& groups,
                                                           StepResult& result);
  absl::Status RunUpdates(LearnerStep step, StepPlan& plan, const std::vector<Group>& groups,
                          Totals& totals);
  absl::Status Update(LearnerStep step, size_t update, const LossDenominators& denominators,
                      StepPlan& plan, const std::vector<Group>& groups, Totals& totals);
  std::vector<RowRef> RowsOf(LearnerStep step, size_t update, StepPlan& plan) const;
  absl::StatusOr<double> SumGradient(const std::vector<RowRef>& refs,
                                     const std::vector<Group>& groups,
                                     const LossDenominators& denominators,
                                     std::vector<RowOutcome>& outcomes);
  void AddPart(const std::vector<RowRef>& refs, parallel::Share part,
               const std::vector<Group>& groups, const LossDenominators& denominators,
               std::vector<RowOutcome>& outcomes);
  absl::Status SumInParts(const std::vector<RowRef>& refs, const std::vector<Group>& groups,
                          const LossDenominators& denominators, std::vector<RowOutcome>& outcomes);
  double Count(size_t update, const std::vector<RowRef>& refs,
               const std::vector<RowOutcome>& outcomes, const LossDenominators& denominators,
               Totals& totals) const;
  absl::Status CheckFinite(LearnerStep step, double loss, double grad_norm);
  absl::Status CheckAgreement(LearnerStep step);

  const TrainerOptions options;
  model::Policy& policy;
  parallel::Ranks& ranks;
  RankOptimizer optimizer;
  bool agreement_known = false;  // Compared since the start.
  uint64_t version = 0;
};

Trainer::Impl::Before Trainer::Impl::Remember() {
  return {.weights = policy.parameters().flat().detach().clone(),
          .average =
              options.ema_enabled ? policy.ema_parameters().flat().detach().clone() : at::Tensor(),
          .optimizer = optimizer.Piece(),
          .version = version};
}

void Trainer::Impl::PutBack(const Before& before) {
  const at::NoGradGuard no_grad;
  policy.parameters().flat().copy_(before.weights);
  if (options.ema_enabled) policy.ema_parameters().flat().copy_(before.average);
  optimizer.RestorePiece(before.optimizer);
  version = before.version;
}

// Before the first step since the start, and then every so many.
absl::Status Trainer::Impl::CheckAgreement(LearnerStep step) {
  if (ranks.size() == 1 || options.agreement_every == 0) return absl::OkStatus();
  const bool due = step.value % static_cast<uint64_t>(options.agreement_every) == 0;
  if (std::exchange(agreement_known, true) && !due) return absl::OkStatus();
  return Annotate(parallel::CheckAgreement(ranks, policy.parameters().tensors()),
                  absl::StrCat("learner step ", step.value));
}

// lp under pi_old of every transition another policy drew. Must come before the first update: after
// it pi_old exists no more.
void Trainer::Impl::ScoreUnderOldPolicy(StepPlan& plan, const std::vector<Group>& groups) {
  const at::NoGradGuard no_grad;
  std::vector<RowRef> wanted;
  for (PlannedSample& sample : plan.samples) AppendRows(sample, wanted);
  const parallel::Share own = OwnGroups(groups);
  std::erase_if(wanted, [&](const RowRef& ref) {
    return !ref.row->needs_old || !own.Has(ref.address.group);
  });
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

// Each rank weighs its own samples; then all know all weights, in plan order. A rejected sample
// stays in the denominator; its rows are not trained.
absl::StatusOr<std::vector<SequenceWeight>> Trainer::Impl::WeighSamples(
    StepPlan& plan, const std::vector<Group>& groups, StepResult& result) {
  const WeightOptions weight_options{.scale = options.weight_scale,
                                     .geometric = options.weight_geometric,
                                     .cap = options.weight_cap,
                                     .floor = options.weight_floor,
                                     .log_clamp = options.weight_log_clamp};
  const parallel::Share own = OwnGroups(groups);
  std::vector<SequenceWeight> weights;
  for (const PlannedSample& planned : plan.samples) {
    if (!planned.weighted) continue;
    weights.emplace_back();
    if (!own.Has(planned.group)) continue;
    std::vector<double> old;
    std::vector<double> behaviour;
    for (const PlannedRow& row : planned.rows) {
      if (!row.in_weight) continue;
      old.push_back(row.log_prob_old);
      behaviour.push_back(row.log_prob_behaviour);
    }
    const int64_t dims = groups[planned.group].samples[planned.sample].latents[0].numel();
    weights.back() = ComputeSequenceWeight(old, behaviour, dims, weight_options);
  }
  OXBOW_RETURN_IF_ERROR(ShareWeights(ranks, weights));
  auto weight = weights.begin();
  for (PlannedSample& planned : plan.samples) {
    const Sample& sample = groups[planned.group].samples[planned.sample];
    if (planned.weighted) {
      planned.weight = weight->weight;
      if (weight->evict && sample.replayed) result.evict.push_back(sample.entry_id);
      ++weight;
    }
    if (sample.replayed && planned.weight > 0) result.used.push_back(sample.entry_id);
  }
  return weights;
}

// The rows an update trains, on all ranks, in plan order. The KL takes all of them, or one random
// step of each sample.
std::vector<RowRef> Trainer::Impl::RowsOf(LearnerStep step, size_t update, StepPlan& plan) const {
  RandomStream stream({.seed = options.run_seed,
                       .group = step.value,
                       .sample = static_cast<uint32_t>(update),
                       .step = kTrainingTime});
  std::vector<RowRef> refs;
  for (const size_t s : plan.updates[update]) {
    PlannedSample& sample = plan.samples[s];
    if (sample.weight <= 0) continue;
    const size_t begin = refs.size();
    AppendRows(sample, refs);
    const size_t count = refs.size() - begin;
    if (options.kl_weight > 0 && !options.kl_all_steps) {
      refs[begin + stream.NextBelow(count)].in_kl = true;
    }
    if (!options.kl_all_steps) continue;
    for (size_t r = begin; r < refs.size(); ++r) refs[r].in_kl = true;
  }
  return refs;
}

// Adds the gradient of the rows of groups `part` and notes their outcomes.
void Trainer::Impl::AddPart(const std::vector<RowRef>& refs, parallel::Share part,
                            const std::vector<Group>& groups, const LossDenominators& denominators,
                            std::vector<RowOutcome>& outcomes) {
  std::vector<RowRef> chosen;
  std::vector<size_t> places;
  for (size_t r = 0; r < refs.size(); ++r) {
    if (!part.Has(refs[r].address.group)) continue;
    chosen.push_back(refs[r]);
    places.push_back(r);
  }
  if (chosen.empty()) return;
  const std::vector<RowOutcome> brought =
      AddGradient(options, policy, groups, chosen, denominators);
  for (size_t i = 0; i < places.size(); ++i) outcomes[places[i]] = brought[i];
}

// Sums the gradient of every rank's rows and limits its norm; returns the norm before. Notes the
// outcomes of this rank's rows.
absl::StatusOr<double> Trainer::Impl::SumGradient(const std::vector<RowRef>& refs,
                                                  const std::vector<Group>& groups,
                                                  const LossDenominators& denominators,
                                                  std::vector<RowOutcome>& outcomes) {
  if (options.deterministic) {
    OXBOW_RETURN_IF_ERROR(SumInParts(refs, groups, denominators, outcomes));
    return optimizer.TakeSum(options.grad_norm_max);
  }
  policy.parameters().ZeroGrad();
  optimizer.Begin();
  AddPart(refs, OwnGroups(groups), groups, denominators, outcomes);
  return optimizer.Sum(options.grad_norm_max);
}

// One gradient per group, added in the order of groups: the same bits whoever computes which.
absl::Status Trainer::Impl::SumInParts(const std::vector<RowRef>& refs,
                                       const std::vector<Group>& groups,
                                       const LossDenominators& denominators,
                                       std::vector<RowOutcome>& outcomes) {
  std::set<size_t> parts;
  for (const RowRef& ref : refs) parts.insert(ref.address.group);
  at::Tensor& grad = policy.parameters().flat_grad();
  std::vector<int> owners;
  std::vector<at::Tensor> mine;
  for (const size_t group : parts) {
    owners.push_back(parallel::OwnerOf(group, groups.size(), ranks.size()));
    if (owners.back() != ranks.rank()) continue;
    policy.parameters().ZeroGrad();
    AddPart(refs, {group, group + 1}, groups, denominators, outcomes);
    mine.push_back(grad.clone());
  }
  const at::Tensor held = mine.empty() ? at::empty({0, grad.numel()}) : at::stack(mine);
  return parallel::SumInOrder(ranks, owners, held, grad);
}

// Adds the update's numbers to those of the step; returns its loss.
double Trainer::Impl::Count(size_t update, const std::vector<RowRef>& refs,
                            const std::vector<RowOutcome>& outcomes,
                            const LossDenominators& denominators, Totals& totals) const {
  double policy_loss = 0;
  double kl = 0;
  for (size_t r = 0; r < refs.size(); ++r) {
    const RowRef& ref = refs[r];
    policy_loss += outcomes[r].policy_loss;
    kl += outcomes[r].kl;
    const double log_ratio = outcomes[r].log_ratio;
    totals.ratios.Add(ref.sample->origin, log_ratio, ref.sample->advantage, options.clip_range);
    if (update == 0 && ref.sample->origin == Origin::kFresh && ref.row->on_policy) {
      const double error = std::abs(std::expm1(log_ratio));
      totals.onpolicy_error = std::max(totals.onpolicy_error.value_or(0), error);
    }
  }
  policy_loss /= denominators.policy;
  kl /= denominators.kl;
  totals.policy_loss += policy_loss;
  totals.kl_loss += kl;
  return policy_loss + options.kl_weight * kl;
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

absl::Status Trainer::Impl::Update(LearnerStep step, size_t update,
                                   const LossDenominators& denominators, StepPlan& plan,
                                   const std::vector<Group>& groups, Totals& totals) {
  const std::vector<RowRef> refs = RowsOf(step, update, plan);
  if (refs.empty()) return absl::OkStatus();
  std::vector<RowOutcome> outcomes(refs.size());
  OXBOW_ASSIGN_OR_RETURN(const double norm, SumGradient(refs, groups, denominators, outcomes));
  OXBOW_RETURN_IF_ERROR(ShareOutcomes(ranks, outcomes));
  const double loss = Count(update, refs, outcomes, denominators, totals);
  OXBOW_RETURN_IF_ERROR(CheckFinite(step, loss, norm));
  OXBOW_RETURN_IF_ERROR(optimizer.Step());
  if (options.ema_enabled) {
    UpdateEma(policy.ema_parameters().flat(), policy.parameters().flat(),
              EmaDecay(optimizer.updates(), options.ema_decay_max));
  }
  totals.grad_norm += norm;
  ++totals.updates;
  return absl::OkStatus();
}

absl::Status Trainer::Impl::RunUpdates(LearnerStep step, StepPlan& plan,
                                       const std::vector<Group>& groups, Totals& totals) {
  const double samples = static_cast<double>(plan.samples_counted) / options.updates;
  const LossDenominators denominators{
      .policy = samples * plan.trained_steps,
      .kl = samples * (options.kl_all_steps ? plan.trained_steps : 1)};
  for (size_t update = 0; update < plan.updates.size(); ++update) {
    OXBOW_RETURN_IF_ERROR(Update(step, update, denominators, plan, groups, totals));
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
  (void)impl.ranks.TakeCommunicationTime();
  OXBOW_RETURN_IF_ERROR(impl.CheckAgreement(step));
  StepResult result;
  StepPlan plan = PlanStep(impl.options, step, version(), groups);
  impl.ScoreUnderOldPolicy(plan, groups);
  OXBOW_ASSIGN_OR_RETURN(const std::vector<SequenceWeight> weights,
                         impl.WeighSamples(plan, groups, result));
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
  result.metrics["train/loss"] =
      (totals.policy_loss + impl.options.kl_weight * totals.kl_loss) / updates;
  result.metrics["train/policy_loss"] = totals.policy_loss / updates;
  result.metrics["train/kl_div"] = totals.kl_loss / updates;
  result.metrics["train/kl_loss"] = impl.options.kl_weight * totals.kl_loss / updates;
  result.metrics["train/grad_norm"] = totals.grad_norm / updates;
  result.metrics["train/update_norm"] =
      (impl.policy.parameters().flat().detach() - before.weights).norm().item<double>();
  totals.ratios.AppendMetrics(result.metrics);
  if (totals.onpolicy_error) result.metrics["train/onpolicy_ratio_err"] = *totals.onpolicy_error;
  if (impl.ranks.size() > 1) {
    const parallel::CommunicationTime time = impl.ranks.TakeCommunicationTime();
    result.metrics["train/communication_s"] = absl::ToDoubleSeconds(time.total);
    result.metrics["train/communication_exposed_s"] = absl::ToDoubleSeconds(time.exposed);
  }
  return result;
}

absl::Status Trainer::TakeStateOfRankZero(std::map<std::string, at::Tensor> state) {
  Impl& impl = *impl_;
  const at::NoGradGuard no_grad;
  at::Tensor& weights = impl.policy.parameters().flat();
  OXBOW_RETURN_IF_ERROR(impl.ranks.Broadcast(weights, 0));
  if (impl.options.ema_enabled) {
    OXBOW_RETURN_IF_ERROR(impl.ranks.Broadcast(impl.policy.ema_parameters().flat(), 0));
  }
  // Not State(): a rank's piece is worth nothing before this.
  if (state.empty()) {
    state = {{"adamw.first_moment", at::zeros_like(weights)},
             {"adamw.second_moment", at::zeros_like(weights)},
             {"counters", at::zeros({2}, at::kLong)}};
  }
  for (auto& [name, tensor] : state) OXBOW_RETURN_IF_ERROR(impl.ranks.Broadcast(tensor, 0));
  return LoadState(state);
}

PolicyVersion Trainer::version() const { return PolicyVersion(impl_->version); }

absl::StatusOr<std::map<std::string, at::Tensor>> Trainer::State() const {
  OXBOW_ASSIGN_OR_RETURN(const AdamWState adamw, impl_->optimizer.Gather());
  return std::map<std::string, at::Tensor>{
      {"adamw.first_moment", adamw.first},
      {"adamw.second_moment", adamw.second},
      {"counters",
       at::tensor(std::vector<int64_t>{static_cast<int64_t>(impl_->version), adamw.updates},
                  at::kLong)}};
}

absl::Status Trainer::LoadState(const std::map<std::string, at::Tensor>& state) {
  const at::IntArrayRef moments = impl_->policy.parameters().flat().sizes();
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
  impl_->optimizer.Restore({.first = state.at("adamw.first_moment"),
                            .second = state.at("adamw.second_moment"),
                            .updates = counters[1].item<int64_t>()});
  impl_->version = static_cast<uint64_t>(counters[0].item<int64_t>());
  return absl::OkStatus();
}

}  // namespace oxbow::rl
