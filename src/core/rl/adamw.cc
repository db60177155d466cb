#include "core/rl/adamw.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/status_macros.h"
#include "core/parallel/ranks.h"

namespace oxbow::rl {
namespace {

constexpr int64_t kAlignment = 64;

int64_t StrideFor(int64_t length, int ranks) {
  const int64_t share = (length + ranks - 1) / ranks;
  return (share + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

double RateFactorAt(const RateSchedule& schedule, uint64_t step) {
  if (schedule.shape == RateShape::kConstant) return 1;
  const double into =
      step >= schedule.steps
          ? 1
          : static_cast<double>(step) / static_cast<double>(std::max<uint64_t>(schedule.steps, 1));
  const double left =
      schedule.shape == RateShape::kLinear ? 1 - into : (1 + std::cos(std::numbers::pi * into)) / 2;
  return schedule.to + (1 - schedule.to) * left;
}

AdamW::AdamW(AdamWOptions options, const at::Tensor& flat)
    : options_(options), first_(at::zeros_like(flat)), second_(at::zeros_like(flat)) {}

double AdamW::learning_rate() const {
  if (options_.warmup_updates <= 0) return options_.learning_rate;
  const double risen = static_cast<double>(updates_ + 1) / options_.warmup_updates;
  return options_.learning_rate * std::min(1., risen);
}

void AdamW::Step(at::Tensor& flat, const at::Tensor& grad, double rate_factor) {
  const at::NoGradGuard no_grad;
  const double rate = learning_rate() * rate_factor;
  ++updates_;
  const auto k = static_cast<double>(updates_);
  const double correction1 = 1 - std::pow(options_.beta1, k);
  const double correction2 = 1 - std::pow(options_.beta2, k);
  flat.mul_(1 - rate * options_.weight_decay);
  first_.lerp_(grad, 1 - options_.beta1);
  second_.mul_(options_.beta2).addcmul_(grad, grad, 1 - options_.beta2);
  const at::Tensor spread = second_.sqrt().div_(std::sqrt(correction2)).add_(options_.epsilon);
  flat.addcdiv_(first_, spread, -rate / correction1);
}

void AdamW::Restore(const at::Tensor& first, const at::Tensor& second, int64_t updates) {
  OXBOW_CHECK(first.sizes() == first_.sizes() && second.sizes() == second_.sizes())
      << "moments of shape " << first.sizes() << " and " << second.sizes();
  first_.copy_(first);
  second_.copy_(second);
  updates_ = updates;
}

double ClipGradNorm(at::Tensor& grad, double norm_max) {
  const double norm = grad.norm().item<double>();
  if (norm_max > 0 && norm > norm_max) grad.mul_(norm_max / (norm + 1e-6));
  return norm;
}

double EmaDecay(int64_t updates, double decay_max) {
  const auto k = static_cast<double>(updates);
  return std::min((1 + k) / (10 + k), decay_max);
}

void UpdateEma(at::Tensor& average, const at::Tensor& current, double decay) {
  const at::NoGradGuard no_grad;
  average.lerp_(current, 1 - decay);
}

ShardedAdamW::ShardedAdamW(AdamWOptions options, const at::Tensor& flat, parallel::Ranks& ranks)
    : ranks_(ranks),
      length_(flat.numel()),
      stride_(StrideFor(length_, ranks.size())),
      begin_(std::min(length_, stride_ * ranks.rank())),
      own_(std::min(stride_, length_ - begin_)),
      piece_(options, Own(flat)) {}

at::Tensor ShardedAdamW::Own(const at::Tensor& whole) const {
  OXBOW_CHECK(whole.dim() == 1 && whole.numel() == length_) << whole.sizes() << ", not " << length_;
  return whole.detach().narrow(0, begin_, own_);
}

absl::StatusOr<double> ShardedAdamW::Reduce(const at::Tensor& grad, double norm_max) {
  const at::NoGradGuard no_grad;
  OXBOW_CHECK(grad.numel() == length_) << grad.sizes() << ", not " << length_;
  at::Tensor whole = grad.detach();
  if (stride_ * ranks_.size() != length_) {
    whole = at::zeros({stride_ * ranks_.size()}, grad.options().requires_grad(false));
    whole.narrow(0, 0, length_).copy_(grad);
  }
  at::Tensor sum = at::empty({stride_}, whole.options());
  OXBOW_RETURN_IF_ERROR(ranks_.ReduceScatterSum(whole, sum));
  grad_ = sum.narrow(0, 0, own_);
  // float64, so that how the elements are spread does not show in the norm.
  at::Tensor square =
      at::linalg_vector_norm(sum, 2, std::nullopt, false, at::kDouble).square().view({1});
  OXBOW_RETURN_IF_ERROR(ranks_.AllReduceSum(square));
  const double norm = std::sqrt(square.item<double>());
  if (norm_max > 0 && norm > norm_max) grad_.mul_(norm_max / (norm + 1e-6));
  return norm;
}

void ShardedAdamW::TakeReduced(const at::Tensor& grad) { grad_ = Own(grad); }

absl::Status ShardedAdamW::Step(at::Tensor& flat, double rate_factor) {
  OXBOW_CHECK(grad_.defined()) << "no gradient was taken";
  const at::NoGradGuard no_grad;
  at::Tensor own = Own(flat);
  piece_.Step(own, grad_, rate_factor);
  grad_ = at::Tensor();
  if (ranks_.size() == 1) return absl::OkStatus();
  OXBOW_ASSIGN_OR_RETURN(const at::Tensor whole, Whole(own));
  flat.copy_(whole);
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> ShardedAdamW::Whole(const at::Tensor& own) {
  const at::NoGradGuard no_grad;
  at::Tensor padded = own;
  if (own_ != stride_) {
    padded = at::zeros({stride_}, own.options());
    padded.narrow(0, 0, own_).copy_(own);
  }
  at::Tensor all = at::empty({stride_ * ranks_.size()}, own.options());
  OXBOW_RETURN_IF_ERROR(ranks_.AllGather(padded, all));
  return all.narrow(0, 0, length_);
}

AdamWState ShardedAdamW::Piece() const {
  return {.first = piece_.first_moment().clone(),
          .second = piece_.second_moment().clone(),
          .updates = piece_.updates()};
}

void ShardedAdamW::RestorePiece(const AdamWState& piece) {
  piece_.Restore(piece.first, piece.second, piece.updates);
}

absl::StatusOr<AdamWState> ShardedAdamW::Gather() {
  if (ranks_.size() == 1) return Piece();
  AdamWState state{.updates = piece_.updates()};
  OXBOW_ASSIGN_OR_RETURN(state.first, Whole(piece_.first_moment()));
  OXBOW_ASSIGN_OR_RETURN(state.second, Whole(piece_.second_moment()));
  return state;
}

void ShardedAdamW::Restore(const AdamWState& state) {
  piece_.Restore(Own(state.first), Own(state.second), state.updates);
}

}  // namespace oxbow::rl
