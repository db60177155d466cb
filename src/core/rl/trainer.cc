// SPDX-License-Identifier: Apache-2.0
#include "core/rl/trainer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/philox.h"
#include "base/status_macros.h"
#include "core/model/policy.h"
#include "core/parallel/node_memory.h"
#include "core/parallel/ranks.h"
#include "core/rl/adamw.h"
#include "core/rl/method.h"
#include "core/rl/policy_copies.h"
#include "core/rl/rank_training.h"
#include "core/rl/step_metrics.h"
#include "metrics/step_metrics.h"

namespace oxbow::rl {
namespace {

// The groups, those of this rank with their prompts where the network is: every pass of the step
// reads them. This rank computes no others.
std::vector<Group> WithPromptsOn(at::Device device, const parallel::Ranks& ranks,
                                 std::vector<Group> groups) {
  const std::vector<int> holders = HoldersOf(groups, ranks.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    if (holders[i] == ranks.rank())
      groups[i].conditioning = model::MovedTo(groups[i].conditioning, device);
  }
  return groups;
}

constexpr int64_t kSharedAtOnce = int64_t{1} << 24;  // Elements.

// flat [N] <- rank 0's, wherever the ranks hold it.
absl::Status ShareFlat(parallel::Ranks& ranks, at::Tensor flat) {
  if (flat.device() == ranks.device()) {
    OXBOW_RETURN_IF_ERROR(ranks.Broadcast(flat, 0));
    flat.unsafeGetTensorImpl()->bump_version();  // Collectives write past torch.
    return absl::OkStatus();
  }
  for (int64_t begin = 0; begin < flat.numel(); begin += kSharedAtOnce) {
    at::Tensor part = flat.narrow(0, begin, std::min(kSharedAtOnce, flat.numel() - begin));
    at::Tensor sent = part.to(ranks.device());
    OXBOW_RETURN_IF_ERROR(ranks.Broadcast(sent, 0));
    part.copy_(sent);
  }
  return absl::OkStatus();
}

// How far the policy's weights are from what they were, summed where they are computed with.
double Distance(model::Policy& policy, const parallel::HostCopy& before) {
  const at::Tensor weights = policy.parameters().flat().detach();
  at::Tensor sum = at::zeros({}, at::TensorOptions(policy.device()).dtype(at::kDouble));
  before.ForEach(policy.device(), [&](int64_t begin, const at::Tensor& piece) {
    sum.add_(SquaredDistance(weights.narrow(0, begin, piece.numel()), piece, policy.device()));
  });
  return std::sqrt(sum.item<double>());
}

// How far the policy's weights are from those of the base model, where that can be known.
std::optional<double> DistanceFromBase(model::Policy& policy) {
  const model::ParameterSet* const base = policy.base_copy();
  if (base == nullptr) return policy.adapter_norm();
  const at::Tensor square =
      SquaredDistance(policy.parameters().flat().detach(), base->flat(), policy.device());
  return std::sqrt(square.item<double>());
}

}  // namespace

struct Trainer::Impl {
  Impl(TrainerOptions o, model::Policy& p, parallel::Ranks& r)
      : options(std::move(o)),
        policy(p),
        ranks(r),
        method(MakeMethod(options, policy, ranks)),
        copies(options.copies, policy),
        optimizer({.adamw = options.adamw,
                   .shards = options.shard_optimizer,
                   .shards_gradient = options.shard_gradients,
                   .sums = !options.deterministic,
                   .moments = options.moments},
                  policy.parameters(), ranks),
        gradient(options, policy, *method, ranks, optimizer) {}

  // State that a step may change before it fails, as it was before: in host memory, since nothing
  // reads it unless the step fails. Of a single update only its own exchange of weights can fail
  // half way, where they have no other place to come to; all that follows cannot.
  struct Before {
    parallel::HostCopy weights;
    std::optional<HostMoments> moments;
    std::optional<parallel::HostCopy> average;
  };
  std::optional<Before> Remember();
  void PutBack(const Before& before);

  absl::Status RunUpdates(const UpdateInputs& inputs, TrainingPlan& plan,
                          const model::RowCount& rows_before, StepTotals& totals,
                          StepResult& result);
  absl::StatusOr<std::optional<double>> SumGradient(size_t update, const UpdateInputs& inputs,
                                                    TrainingPlan& plan, StepTotals& totals);
  absl::StatusOr<double> Move(LearnerStep step, double norm, StepTotals& totals);
  std::vector<RowRef> RowsOf(LearnerStep step, size_t update, TrainingPlan& plan) const;
  absl::Status AppendCost(const model::RowCount& before, std::map<std::string, double>& metrics);
  LossDenominators DenominatorsOf(LearnerStep step, const TrainingPlan& plan) const;
  absl::Status CheckFinite(LearnerStep step, double loss, double grad_norm);
  absl::Status CheckAgreement(LearnerStep step);

  // A saved state: whether it fits, what it counts, and the moments of rank 0's on all ranks.
  absl::Status CheckState(const std::map<std::string, at::Tensor>& state) const;
  void SetCounters(const at::Tensor& counters);
  absl::Status TakeMoments(const std::map<std::string, at::Tensor>& of_rank_zero);

  const TrainerOptions options;
  model::Policy& policy;
  parallel::Ranks& ranks;
  const std::unique_ptr<Method> method;
  PolicyCopies copies;
  RankOptimizer optimizer;
  RankGradient gradient;
  bool agreement_known = false;  // Compared since the start.
  uint64_t version = 0;
};

std::optional<Trainer::Impl::Before> Trainer::Impl::Remember() {
  const bool several = options.UpdatesPerStep() > 1;
  const bool in_place = optimizer.sharded_gradient() != nullptr && !policy.parameters().offloaded();
  if (!several && !in_place) return std::nullopt;
  Before before{.weights = parallel::HostCopy(policy.parameters().flat()),
                .moments = std::nullopt,
                .average = std::nullopt};
  if (several) before.moments = optimizer.adamw().CopyToHost();
  if (several && options.ema_enabled) {
    before.average = parallel::HostCopy(policy.ema_parameters().flat());
  }
  return before;
}

void Trainer::Impl::PutBack(const Before& before) {
  before.weights.PutBack(policy.parameters().flat().detach());
  if (before.average.has_value()) before.average->PutBack(policy.ema_parameters().flat().detach());
  if (before.moments.has_value()) optimizer.adamw().PutBack(*before.moments);
}

// Before the first step since the start, and then every so many.
absl::Status Trainer::Impl::CheckAgreement(LearnerStep step) {
  if (ranks.size() == 1 || options.drift_check_every == 0) return absl::OkStatus();
  const bool due = step.value % static_cast<uint64_t>(options.drift_check_every) == 0;
  if (std::exchange(agreement_known, true) && !due) return absl::OkStatus();
  return Annotate(parallel::CheckAgreement(ranks, policy.parameters().tensors()),
                  absl::StrCat("learner step ", step.value));
}

// The rows an update trains, on all ranks, in plan order. The KL takes all of them, or one random
// row of each sample.
std::vector<RowRef> Trainer::Impl::RowsOf(LearnerStep step, size_t update,
                                          TrainingPlan& plan) const {
  RandomStream stream({.seed = options.run_seed,
                       .group = step.value,
                       .sample = static_cast<uint32_t>(update),
                       .step = kTrainingTime});
  std::vector<RowRef> refs;
  for (const size_t s : plan.updates[update]) {
    PlannedTrajectory& trajectory = plan.trajectories[s];
    if (trajectory.weight <= 0) continue;
    const size_t begin = refs.size();
    AppendRows(trajectory, refs);
    refs.erase(std::remove_if(refs.begin() + static_cast<std::ptrdiff_t>(begin), refs.end(),
                              [](const RowRef& ref) { return !ref.row->trained; }),
               refs.end());
    const size_t count = refs.size() - begin;
    if (options.kl.weight > 0 && !options.kl.all_steps) {
      refs[begin + stream.NextBelow(count)].in_kl = true;
    }
    if (!options.kl.all_steps) continue;
    for (size_t r = begin; r < refs.size(); ++r) refs[r].in_kl = true;
  }
  return refs;
}

LossDenominators Trainer::Impl::DenominatorsOf(LearnerStep step, const TrainingPlan& plan) const {
  const double trajectories = static_cast<double>(plan.samples_counted) / options.updates;
  if (plan.edges_counted.has_value()) {
    const double edges = static_cast<double>(*plan.edges_counted) / options.updates;
    return {.policy = edges,
            .kl = options.kl.all_steps ? edges : trajectories,
            .trajectories = trajectories};
  }
  const int rows = method->RowsPerSample(step);
  return {.policy = trajectories * rows,
          .kl = trajectories * (options.kl.all_steps ? rows : 1),
          .trajectories = trajectories};
}

// The cost of the step, on all ranks.
absl::Status Trainer::Impl::AppendCost(const model::RowCount& before,
                                       std::map<std::string, double>& metrics) {
  const model::RowCount now = policy.rows();
  OXBOW_ASSIGN_OR_RETURN(const model::RowCount spent,
                         SumRowCounts(ranks, {.forward = now.forward - before.forward,
                                              .backward = now.backward - before.backward}));
  metrics[metric::kTrainRowsForward] = static_cast<double>(spent.forward);
  metrics[metric::kTrainRowsBackward] = static_cast<double>(spent.backward);
  return absl::OkStatus();
}

absl::Status Trainer::Impl::CheckFinite(LearnerStep step, double loss, double grad_norm) {
  if (!std::isfinite(loss)) {
    return absl::OutOfRangeError(absl::StrCat("loss is not finite at learner step ", step.value));
  }
  if (std::isfinite(grad_norm)) return absl::OkStatus();
  if (const std::string name = optimizer.NotFinite(); !name.empty()) {
    return absl::OutOfRangeError(
        absl::StrCat("gradient of ", name, " is not finite at learner step ", step.value));
  }
  return absl::OutOfRangeError(
      absl::StrCat("gradient norm is not finite at learner step ", step.value));
}

// The gradient of an update's rows, summed over ranks and limited; returns its norm before, or
// nothing where the update has no rows.
absl::StatusOr<std::optional<double>> Trainer::Impl::SumGradient(size_t update,
                                                                 const UpdateInputs& inputs,
                                                                 TrainingPlan& plan,
                                                                 StepTotals& totals) {
  const std::vector<RowRef> refs = RowsOf(inputs.step, update, plan);
  if (refs.empty()) return std::nullopt;
  std::vector<RowOutcome> outcomes(refs.size());
  OXBOW_ASSIGN_OR_RETURN(const double norm, gradient.Sum(inputs, refs, outcomes));
  bool stop = inputs.interrupted && inputs.interrupted();
  OXBOW_RETURN_IF_ERROR(ShareOutcomes(ranks, outcomes, stop));
  if (stop) return absl::CancelledError("interrupted");
  const double loss = totals.Count(update, refs, outcomes, inputs.denominators);
  OXBOW_RETURN_IF_ERROR(CheckFinite(inputs.step, loss, norm));
  return norm;
}

// One update of weights and running average by the gradient; returns the length of the change.
// After an error nothing has changed.
absl::StatusOr<double> Trainer::Impl::Move(LearnerStep step, double norm, StepTotals& totals) {
  model::ParameterSet* const average = options.ema_enabled ? &policy.ema_parameters() : nullptr;
  OXBOW_ASSIGN_OR_RETURN(const at::Tensor change,
                         optimizer.Step(RateFactorAt(options.rate_schedule, step.value), average,
                                        options.ema_decay_max));
  const double limited = options.grad_norm_max > 0 ? std::min(norm, options.grad_norm_max) : norm;
  totals.Moved(norm, limited / std::sqrt(static_cast<double>(policy.parameters().flat().numel())));
  return std::sqrt(change.item<double>());
}

absl::Status Trainer::Impl::RunUpdates(const UpdateInputs& inputs, TrainingPlan& plan,
                                       const model::RowCount& rows_before, StepTotals& totals,
                                       StepResult& result) {
  double& moved = result.metrics[metric::kTrainUpdateNorm];
  for (size_t update = 0; update < plan.updates.size(); ++update) {
    OXBOW_ASSIGN_OR_RETURN(const std::optional<double> norm,
                           SumGradient(update, inputs, plan, totals));
    // Before the last update: nothing may fail after it.
    if (update + 1 == plan.updates.size()) {
      OXBOW_RETURN_IF_ERROR(AppendCost(rows_before, result.metrics));
    }
    if (!norm.has_value()) continue;
    OXBOW_ASSIGN_OR_RETURN(moved, Move(inputs.step, *norm, totals));
  }
  return absl::OkStatus();
}

Trainer::Trainer(TrainerOptions options, model::Policy& policy, parallel::Ranks& ranks)
    : impl_(std::make_unique<Impl>(std::move(options), policy, ranks)) {
  OXBOW_CHECK(impl_->options.updates >= 1 && impl_->options.passes >= 1)
      << "updates " << impl_->options.updates << ", passes " << impl_->options.passes;
}

Trainer::~Trainer() = default;

absl::StatusOr<StepResult> Trainer::Step(LearnerStep step, const std::vector<Group>& given,
                                         const std::function<bool()>& interrupted) {
  Impl& impl = *impl_;
  const at::Device device = impl.policy.device();
  const std::vector<Group> moved =
      device.is_cpu() ? std::vector<Group>() : WithPromptsOn(device, impl.ranks, given);
  const std::vector<Group>& groups = device.is_cpu() ? given : moved;
  (void)impl.ranks.TakeCommunicationTime();
  const model::RowCount rows_before = impl.policy.rows();
  OXBOW_RETURN_IF_ERROR(impl.CheckAgreement(step));
  TrainingPlan plan =
      PlanTraining(impl.options, step, groups, [&](const Group& g, const Trajectory& s) {
        return impl.method->Plan(step, version(), g, s);
      });
  bool stop = false;
  const auto asked = [&] { return stop = stop || (interrupted && interrupted()); };
  OXBOW_ASSIGN_OR_RETURN(Preparation prepared, impl.method->Prepare(step, plan, groups, asked));
  stop = asked();
  OXBOW_RETURN_IF_ERROR(AgreeToStop(impl.ranks, stop));
  if (stop) return absl::CancelledError("interrupted");
  StepResult result{
      .metrics = {}, .used = std::move(prepared.used), .evict = std::move(prepared.evict)};
  AppendPlanMetrics(impl.options, version(), groups, plan, result.metrics);
  AppendWeightMetrics(prepared.weights, result.metrics);

  result.metrics[metric::kTrainLr] =
      impl.optimizer.adamw().learning_rate() * RateFactorAt(impl.options.rate_schedule, step.value);
  StepTotals totals(impl.options, step, impl.method->has_ratio());
  const UpdateInputs inputs{.step = step,
                            .groups = groups,
                            .denominators = impl.DenominatorsOf(step, plan),
                            .interrupted = interrupted};
  const std::optional<Impl::Before> before = impl.Remember();
  absl::Status status = impl.RunUpdates(inputs, plan, rows_before, totals, result);
  if (!status.ok()) {
    if (before.has_value()) impl.PutBack(*before);
    return status;
  }
  // As many for every step, so that versions tell steps.
  impl.version += static_cast<uint64_t>(impl.options.UpdatesPerStep());
  totals.AppendMetrics(result.metrics);
  if (before.has_value()) {
    result.metrics[metric::kTrainUpdateNorm] = Distance(impl.policy, before->weights);
  }
  if (const auto distance = DistanceFromBase(impl.policy)) {
    result.metrics[metric::kTrainBaseDistance] = *distance;
  }
  const double decay =
      impl.copies.Follow(impl.version / static_cast<uint64_t>(impl.options.UpdatesPerStep()));
  if (impl.policy.has_old()) result.metrics[metric::kTrainOldDecay] = decay;
  if (impl.ranks.size() > 1) {
    const parallel::CommunicationTime time = impl.ranks.TakeCommunicationTime();
    result.metrics[metric::kTrainCommunicationS] = absl::ToDoubleSeconds(time.total);
    result.metrics[metric::kTrainCommunicationExposedS] = absl::ToDoubleSeconds(time.exposed);
  }
  return result;
}

absl::Status Trainer::ShareHostMemory() {
  Impl& impl = *impl_;
  model::Policy& policy = impl.policy;
  if (impl.optimizer.sharded_gradient() == nullptr || !policy.parameters().offloaded()) {
    return absl::OkStatus();
  }
  std::vector<model::ParameterSet*> sets = {&policy.parameters()};
  if (impl.options.ema_enabled) sets.push_back(&policy.ema_parameters());
  size_t bytes = 0;
  for (const model::ParameterSet* const set : sets) bytes += set->SharedBytes();
  using Held = std::shared_ptr<parallel::NodeMemory>;
  OXBOW_ASSIGN_OR_RETURN(const Held memory, parallel::NodeMemory::Share(impl.ranks, bytes));
  if (memory->count() == 1) sets.resize(1);  // An average of one's own needs no second place.
  size_t taken = 0;
  const auto place = [&](size_t length) {
    std::byte* const at = memory->data() + std::exchange(taken, taken + length);
    return at::DataPtr(
        at, new Held(memory), [](void* held) { delete static_cast<Held*>(held); }, at::kCPU);
  };
  for (model::ParameterSet* const set : sets) {
    set->MoveTo(place, {.place = memory->place(), .count = memory->count()});
  }
  if (policy.device().is_cuda()) memory->Pin(taken);
  return impl.ranks.Barrier();  // Nobody reads before the values are there.
}

absl::Status Trainer::TakeStateOfRankZero(std::map<std::string, at::Tensor> state) {
  Impl& impl = *impl_;
  const at::NoGradGuard no_grad;
  const bool leads = impl.ranks.rank() == 0;
  if (leads && !state.empty()) OXBOW_RETURN_IF_ERROR(impl.CheckState(state));
  OXBOW_RETURN_IF_ERROR(ShareFlat(impl.ranks, impl.policy.parameters().flat()));
  if (impl.options.ema_enabled) {
    OXBOW_RETURN_IF_ERROR(ShareFlat(impl.ranks, impl.policy.ema_parameters().flat()));
  }
  std::string saved = state.empty() ? "" : "saved";
  OXBOW_RETURN_IF_ERROR(impl.ranks.BroadcastBytes(saved, 0));
  at::Tensor counters = at::zeros({2}, at::kLong);
  std::map<std::string, at::Tensor> copies = impl.copies.State();
  if (!saved.empty()) {  // A fresh start's moments are zero everywhere.
    OXBOW_RETURN_IF_ERROR(impl.TakeMoments(state));
    if (leads) counters = state.at("counters").to(at::kLong);
    for (auto& [name, tensor] : copies) {
      if (leads) tensor = state.at(name);
    }
  }
  counters = counters.to(impl.ranks.device());
  OXBOW_RETURN_IF_ERROR(impl.ranks.Broadcast(counters, 0));
  for (auto& [name, tensor] : copies) OXBOW_RETURN_IF_ERROR(ShareFlat(impl.ranks, tensor));
  impl.SetCounters(counters);
  impl.copies.Load(copies);
  return absl::OkStatus();
}

// Part by part, so that a device needs room for a part and not for all moments.
absl::Status Trainer::Impl::TakeMoments(const std::map<std::string, at::Tensor>& of_rank_zero) {
  const int64_t length = policy.parameters().flat().numel();
  for (int64_t begin = 0; begin < length; begin += kSharedAtOnce) {
    const int64_t count = std::min(kSharedAtOnce, length - begin);
    const auto part = [&](const char* name) -> absl::StatusOr<at::Tensor> {
      at::Tensor sent = at::empty({count}, at::TensorOptions(ranks.device()).dtype(at::kFloat));
      if (ranks.rank() == 0) sent.copy_(of_rank_zero.at(name).narrow(0, begin, count));
      OXBOW_RETURN_IF_ERROR(ranks.Broadcast(sent, 0));
      return sent;
    };
    OXBOW_ASSIGN_OR_RETURN(const at::Tensor first, part("adamw.first_moment"));
    OXBOW_ASSIGN_OR_RETURN(const at::Tensor second, part("adamw.second_moment"));
    optimizer.adamw().RestorePart(begin, first, second);
  }
  return absl::OkStatus();
}

std::vector<bool> Trainer::HaveSignal(const std::vector<Group>& groups) const {
  return rl::HaveSignal(impl_->options, groups);
}

PolicyVersion Trainer::version() const { return PolicyVersion(impl_->version); }

absl::StatusOr<std::map<std::string, at::Tensor>> Trainer::State() const {
  OXBOW_ASSIGN_OR_RETURN(const AdamWState adamw, impl_->optimizer.adamw().Gather());
  std::map<std::string, at::Tensor> state = impl_->copies.State();
  state["counters"] = Counters();
  state["adamw.first_moment"] = adamw.first;
  state["adamw.second_moment"] = adamw.second;
  return state;
}

bool Trainer::has_pieces() const { return impl_->optimizer.shards(); }

Trainer::HostCopies Trainer::CopyMoments() const {
  const HostMoments moments = impl_->optimizer.adamw().CopyToHost();
  return {{"adamw.first_moment", moments.first}, {"adamw.second_moment", moments.second}};
}

Trainer::HostCopies Trainer::CopyPolicies() const { return impl_->copies.CopyToHost(); }

at::Tensor Trainer::Counters() const {
  return at::tensor(std::vector<int64_t>{static_cast<int64_t>(impl_->version),
                                         impl_->optimizer.adamw().updates()},
                    at::kLong);
}

absl::Status Trainer::Impl::CheckState(const std::map<std::string, at::Tensor>& state) const {
  std::map<std::string, at::Tensor> expected = copies.State();
  expected["adamw.first_moment"] = policy.parameters().flat();
  expected["adamw.second_moment"] = policy.parameters().flat();
  expected["counters"] = at::zeros({2}, at::kLong);
  for (const auto& [name, like] : expected) {
    const auto found = state.find(name);
    if (found == state.end()) {
      return absl::InvalidArgumentError(absl::StrCat("trainer state lacks ", name));
    }
    if (found->second.sizes() != like.sizes()) {
      return absl::InvalidArgumentError(absl::StrCat("trainer state has another shape at ", name,
                                                     ": ", found->second.numel(), " values"));
    }
  }
  return absl::OkStatus();
}

void Trainer::Impl::SetCounters(const at::Tensor& counters) {
  const at::Tensor numbers = counters.to(at::kCPU, at::kLong);
  version = static_cast<uint64_t>(numbers[0].item<int64_t>());
  optimizer.adamw().SetUpdates(numbers[1].item<int64_t>());
}

absl::Status Trainer::LoadState(const std::map<std::string, at::Tensor>& state) {
  OXBOW_RETURN_IF_ERROR(impl_->CheckState(state));
  impl_->optimizer.adamw().Restore(
      {.first = state.at("adamw.first_moment"), .second = state.at("adamw.second_moment")});
  impl_->SetCounters(state.at("counters"));
  impl_->copies.Load(state);
  return absl::OkStatus();
}

}  // namespace oxbow::rl
