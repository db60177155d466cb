// SPDX-License-Identifier: Apache-2.0
#include "core/rl/adamw.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "core/parallel/ranks.h"

namespace oxbow::rl {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kNormBlock = int64_t{1} << 18;

// Elements that one pass over flat tensors takes at a time: on a CPU they stay in its cache. A
// multiple of kAlignment.
int64_t PieceLength(at::Device device) {
  return device.is_cpu() ? int64_t{1} << 15 : int64_t{1} << 24;
}

void ForEachPiece(int64_t length, at::Device device,
                  const std::function<void(int64_t, int64_t)>& use) {
  const int64_t piece = PieceLength(device);
  for (int64_t begin = 0; begin < length; begin += piece) {
    use(begin, std::min(piece, length - begin));
  }
}

// A piece where it is computed with: itself, or a copy.
at::Tensor On(at::Device device, const at::Tensor& piece) {
  return piece.to(device, /*non_blocking=*/true);
}

// |x|² of one piece, whose float32 sum is exact enough; a float64 number.
at::Tensor SquaredLength(const at::Tensor& x) {
  return at::linalg_vector_norm(x, 2).to(at::kDouble).square();
}

int64_t StrideFor(int64_t length, int ranks) {
  const int64_t share = (length + ranks - 1) / ranks;
  return (share + kAlignment - 1) / kAlignment * kAlignment;
}

// Elements of a rank's piece in one collective of at most `exchanged_max`.
int64_t PartLength(int64_t exchanged_max, const parallel::Ranks& ranks) {
  return std::max<int64_t>(1, exchanged_max / ranks.size() / kAlignment) * kAlignment;
}

// The host may read what was sent to it from `device`.
void WaitForCopies(at::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
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

AdamW::AdamW(AdamWOptions options, const at::Tensor& flat, MomentPlace place,
             std::optional<at::Device> device)
    : options_(options), length_(flat.numel()), device_(device.value_or(flat.device())) {
  if (place == MomentPlace::kHost) {
    host_first_ = parallel::HostCopy::Zeros(length_, device_);
    host_second_ = parallel::HostCopy::Zeros(length_, device_);
    return;
  }
  first_ = at::zeros({length_}, at::TensorOptions(device_).dtype(flat.scalar_type()));
  second_ = at::zeros_like(first_);
}

void AdamW::Look(int64_t begin, int64_t length, const UseMoments& use) const {
  if (!host_first_.has_value()) {
    at::Tensor first = first_.narrow(0, begin, length), second = second_.narrow(0, begin, length);
    return use(first, second);
  }
  at::Tensor first = at::empty({length}, at::TensorOptions(device_).dtype(at::kFloat));
  at::Tensor second = at::empty_like(first);
  host_first_->Read(begin, first);
  host_second_->Read(begin, second);
  use(first, second);
}

void AdamW::Change(int64_t begin, int64_t length, const UseMoments& use) {
  Look(begin, length, [&](at::Tensor& first, at::Tensor& second) {
    use(first, second);
    if (!host_first_.has_value()) return;
    host_first_->Write(begin, first);
    host_second_->Write(begin, second);
  });
}

double AdamW::learning_rate() const {
  if (options_.warmup_updates <= 0) return options_.learning_rate;
  const double risen = static_cast<double>(updates_ + 1) / options_.warmup_updates;
  return options_.learning_rate * std::min(1., risen);
}

at::Tensor AdamW::Step(at::Tensor& flat, const at::Tensor& grad, double rate_factor,
                       const at::Tensor& narrow) {
  const at::NoGradGuard no_grad;
  at::Tensor change = at::zeros({}, at::TensorOptions(device_).dtype(at::kDouble));
  ForEachPiece(length_, device_, [&](int64_t begin, int64_t length) {
    Change(begin, length, [&](at::Tensor& first, at::Tensor& second) {
      at::Tensor piece = flat.narrow(0, begin, length);
      at::Tensor weights = On(device_, piece);
      const at::Tensor before = weights.clone();
      MoveMoments(grad.narrow(0, begin, length), first, second);
      MoveWeights(rate_factor, first, second, weights);
      change.add_(SquaredLength(weights - before));
      if (!weights.is_alias_of(piece)) piece.copy_(weights, /*non_blocking=*/true);
      if (!narrow.defined()) return;
      narrow.narrow(0, begin, length)
          .copy_(weights.to(narrow.scalar_type()), /*non_blocking=*/true);
    });
  });
  if (flat.device() != device_) WaitForCopies(device_);
  ++updates_;
  return change;
}

at::Tensor AdamW::Propose(int64_t place, const at::Tensor& flat, const at::Tensor& grad,
                          double rate_factor, at::Tensor& next) const {
  const at::NoGradGuard no_grad;
  at::Tensor change = at::zeros({}, at::TensorOptions(device_).dtype(at::kDouble));
  ForEachPiece(flat.numel(), device_, [&](int64_t begin, int64_t length) {
    Look(place + begin, length, [&](const at::Tensor& old_first, const at::Tensor& old_second) {
      at::Tensor first = old_first.clone(), second = old_second.clone();
      MoveMoments(grad.narrow(0, begin, length), first, second);
      at::Tensor weights = next.narrow(0, begin, length);
      weights.copy_(flat.narrow(0, begin, length));
      const at::Tensor before = weights.clone();
      MoveWeights(rate_factor, first, second, weights);
      change.add_(SquaredLength(weights - before));
    });
  });
  return change;
}

void AdamW::Commit(const at::Tensor& grad) {
  const at::NoGradGuard no_grad;
  ForEachPiece(grad.numel(), device_, [&](int64_t begin, int64_t length) {
    Change(begin, length, [&](at::Tensor& first, at::Tensor& second) {
      MoveMoments(grad.narrow(0, begin, length), first, second);
    });
  });
  ++updates_;
}

void AdamW::MoveMoments(const at::Tensor& grad, at::Tensor& first, at::Tensor& second) const {
  first.lerp_(grad, 1 - options_.beta1);
  second.mul_(options_.beta2).addcmul_(grad, grad, 1 - options_.beta2);
}

// By the moments after the update.
void AdamW::MoveWeights(double rate_factor, const at::Tensor& first, const at::Tensor& second,
                        at::Tensor& weights) const {
  const double rate = learning_rate() * rate_factor;
  const auto k = static_cast<double>(updates_ + 1);
  const double correction1 = 1 - std::pow(options_.beta1, k);
  const double correction2 = 1 - std::pow(options_.beta2, k);
  weights.mul_(1 - rate * options_.weight_decay);
  const at::Tensor spread = second.sqrt().div_(std::sqrt(correction2)).add_(options_.epsilon);
  weights.addcdiv_(first, spread, -rate / correction1);
}

AdamWState AdamW::State() const {
  const auto copied = [&](const at::Tensor& moment, const std::optional<parallel::HostCopy>& host) {
    at::Tensor copy = at::empty({length_}, at::kFloat);
    host.has_value() ? host->Read(0, copy) : void(copy.copy_(moment));
    return copy;
  };
  return {.first = copied(first_, host_first_),
          .second = copied(second_, host_second_),
          .updates = updates_};
}

HostMoments AdamW::CopyToHost() const {
  const auto copied = [](const at::Tensor& moment, const std::optional<parallel::HostCopy>& host) {
    return host.has_value() ? *host : parallel::HostCopy(moment);
  };
  return {.first = copied(first_, host_first_),
          .second = copied(second_, host_second_),
          .updates = updates_};
}

void AdamW::PutBack(const HostMoments& moments) {
  if (host_first_.has_value()) {
    host_first_ = moments.first;
    host_second_ = moments.second;
  } else {
    moments.first.PutBack(first_);
    moments.second.PutBack(second_);
  }
  updates_ = moments.updates;
}

void AdamW::Restore(const AdamWState& state) {
  RestorePart(0, state.first, state.second);
  updates_ = state.updates;
}

void AdamW::RestorePart(int64_t begin, const at::Tensor& first, const at::Tensor& second) {
  const int64_t length = first.numel();
  OXBOW_CHECK(second.numel() == length && begin + length <= length_)
      << "moments of " << first.sizes() << " and " << second.sizes() << " at " << begin;
  if (host_first_.has_value()) {
    host_first_->Write(begin, first);
    host_second_->Write(begin, second);
    return;
  }
  first_.narrow(0, begin, length).copy_(first);
  second_.narrow(0, begin, length).copy_(second);
}

at::Tensor SquaredDistance(const at::Tensor& a, const at::Tensor& b,
                           std::optional<at::Device> device) {
  const at::NoGradGuard no_grad;
  const at::Device there = device.value_or(a.device());
  at::Tensor sum = at::zeros({}, at::TensorOptions(there).dtype(at::kDouble));
  ForEachPiece(a.numel(), there, [&](int64_t begin, int64_t length) {
    sum.add_(SquaredLength(On(there, a.narrow(0, begin, length)) -
                           On(there, b.narrow(0, begin, length))));
  });
  return sum;
}

double ClipGradNorm(at::Tensor& grad, double norm_max) {
  const double norm = grad.norm().item<double>();
  LimitNorm(norm, norm_max, grad);
  return norm;
}

void LimitNorm(double norm, double norm_max, at::Tensor& grad) {
  if (norm_max > 0 && norm > norm_max) grad.mul_(norm_max / (norm + 1e-6));
}

// Blocks are always counted from the same memory, whose alignment and length kernels may look at.
void NormOfPieces::Add(const at::Tensor& piece) {
  const at::NoGradGuard no_grad;
  if (!block_.defined()) {
    block_ = at::zeros({kNormBlock}, piece.options());
    square_ = at::zeros({}, piece.options().dtype(at::kDouble));
  }
  for (int64_t begin = 0; begin < piece.numel();) {
    const int64_t length = std::min(piece.numel() - begin, kNormBlock - filled_);
    block_.narrow(0, filled_, length).copy_(piece.narrow(0, begin, length));
    begin += length;
    filled_ += length;
    if (filled_ == kNormBlock) Count();
  }
}

void NormOfPieces::Count() {
  square_.add_(at::linalg_vector_norm(block_, 2, std::nullopt, false, at::kDouble).square());
  block_.zero_();
  filled_ = 0;
}

double NormOfPieces::Norm() {
  if (!block_.defined()) return 0;
  const at::NoGradGuard no_grad;
  Count();
  return std::sqrt(square_.item<double>());
}

double EmaDecay(int64_t updates, double decay_max) {
  const auto k = static_cast<double>(updates);
  return std::min((1 + k) / (10 + k), decay_max);
}

void UpdateEma(at::Tensor& average, const at::Tensor& current, double decay,
               std::optional<at::Device> device) {
  const at::NoGradGuard no_grad;
  const at::Device there = device.value_or(current.device());
  if (average.device() == there && current.device() == there) {
    average.lerp_(current, 1 - decay);
    return;
  }
  ForEachPiece(current.numel(), there, [&](int64_t begin, int64_t length) {
    at::Tensor piece = average.narrow(0, begin, length).to(there);
    piece.lerp_(On(there, current.narrow(0, begin, length)), 1 - decay);
    average.narrow(0, begin, length).copy_(piece);
  });
}

ShardedAdamW::ShardedAdamW(AdamWOptions options, const at::Tensor& flat, parallel::Ranks& ranks,
                           MomentPlace place, std::optional<at::Device> device)
    : ranks_(ranks),
      length_(flat.numel()),
      part_(PartLength(options.exchanged_max, ranks)),
      stride_(StrideFor(length_, ranks.size())),
      begin_(std::min(length_, stride_ * ranks.rank())),
      own_(std::min(stride_, length_ - begin_)),
      piece_(options, Own(flat), place, device) {}

at::Tensor ShardedAdamW::Own(const at::Tensor& whole) const {
  OXBOW_CHECK(whole.dim() == 1 && whole.numel() == length_) << whole.sizes() << ", not " << length_;
  return whole.detach().narrow(0, begin_, own_);
}

absl::StatusOr<double> ShardedAdamW::Reduce(const at::Tensor& grad, double norm_max) {
  const at::NoGradGuard no_grad;
  OXBOW_CHECK(grad.numel() == length_) << grad.sizes() << ", not " << length_;
  memory_ = grad.detach();
  at::Tensor sum = at::empty({stride_}, memory_.options());
  OXBOW_RETURN_IF_ERROR(ScatterSum(memory_, sum));
  return LimitOwn(sum.narrow(0, 0, own_), norm_max);
}

absl::StatusOr<double> ShardedAdamW::TakePiece(at::Tensor own, double norm_max) {
  memory_ = at::Tensor();
  return LimitOwn(std::move(own), norm_max);
}

void ShardedAdamW::TakeLimitedPiece(at::Tensor own) {
  OXBOW_CHECK(own.numel() == own_) << own.sizes() << ", not " << own_;
  memory_ = at::Tensor();
  grad_ = std::move(own);
}

// Limits the norm of the whole gradient, of which each rank has its piece.
absl::StatusOr<double> ShardedAdamW::LimitOwn(at::Tensor own, double norm_max) {
  const at::NoGradGuard no_grad;
  OXBOW_CHECK(own.numel() == own_) << own.sizes() << ", not " << own_;
  grad_ = std::move(own);
  // float64, so that how the elements are spread does not show in the norm.
  at::Tensor square =
      at::linalg_vector_norm(grad_, 2, std::nullopt, false, at::kDouble).square().view({1});
  OXBOW_RETURN_IF_ERROR(ranks_.AllReduceSum(square));
  const double norm = std::sqrt(square.item<double>());
  LimitNorm(norm, norm_max, grad_);
  return norm;
}

void ShardedAdamW::TakeReduced(const at::Tensor& grad) {
  memory_ = grad.detach();
  grad_ = ranks_.size() == 1 ? Own(grad) : Own(grad).clone();
}

absl::StatusOr<at::Tensor> ShardedAdamW::Step(at::Tensor& flat, double rate_factor,
                                              const at::Tensor& narrow) {
  OXBOW_CHECK(grad_.defined()) << "no gradient was taken";
  const at::NoGradGuard no_grad;
  if (!memory_.defined()) {
    const at::Tensor weights = flat.detach();
    const auto take = [&](int64_t begin, const at::Tensor& part) {
      weights.narrow(0, begin, part.numel()).copy_(part);
    };
    return StepInto(take, weights, rate_factor);
  }
  const at::Tensor grad = std::exchange(grad_, at::Tensor());
  at::Tensor next = std::exchange(memory_, at::Tensor());
  at::Tensor own = Own(flat);
  if (ranks_.size() == 1) return piece_.Step(own, grad, rate_factor, narrow);
  at::Tensor own_next = Own(next);
  piece_.Propose(0, own, grad, rate_factor, own_next);
  OXBOW_RETURN_IF_ERROR(GatherWhole(own_next, next));
  piece_.Commit(grad);
  const at::Tensor change = SquaredDistance(next, flat);
  flat.copy_(next);
  return change;
}

absl::Status ShardedAdamW::ScatterSum(const at::Tensor& whole, at::Tensor& own) {
  for (int64_t begin = 0; begin < stride_; begin += part_) {
    const int64_t length = std::min(part_, stride_ - begin);
    const at::Tensor sent = at::zeros({ranks_.size(), length}, whole.options());
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const int64_t from = std::min(length_, stride_ * rank + begin);
      const int64_t count = std::min(length, length_ - from);
      sent[rank].narrow(0, 0, count).copy_(whole.narrow(0, from, count));
    }
    at::Tensor sum = own.narrow(0, begin, length);
    OXBOW_RETURN_IF_ERROR(ranks_.ReduceScatterSum(sent.flatten(), sum));
  }
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> ShardedAdamW::StepInto(const TakePart& take, const at::Tensor& flat,
                                                  double rate_factor) {
  OXBOW_CHECK(grad_.defined() && !memory_.defined()) << "no piece of a gradient was taken";
  const at::NoGradGuard no_grad;
  const at::Tensor grad = std::exchange(grad_, at::Tensor());
  at::Tensor change = at::zeros({}, grad.options().dtype(at::kDouble));
  const at::Tensor weights = flat.detach();
  OXBOW_RETURN_IF_ERROR(Exchange(
      grad.options(),
      [&](int64_t begin, at::Tensor part) {
        change.add_(piece_.Propose(begin, weights.narrow(0, begin_ + begin, part.numel()),
                                   grad.narrow(0, begin, part.numel()), rate_factor, part));
      },
      take));
  if (flat.device() != grad.device()) WaitForCopies(grad.device());
  at::Tensor sum = change.view({1});
  OXBOW_RETURN_IF_ERROR(ranks_.AllReduceSum(sum));
  piece_.Commit(grad);
  return sum.squeeze(0);
}

absl::Status ShardedAdamW::GatherWhole(const at::Tensor& own, at::Tensor& whole) {
  return Exchange(
      whole.options(),
      [&](int64_t begin, at::Tensor part) { part.copy_(own.narrow(0, begin, part.numel())); },
      [&](int64_t begin, const at::Tensor& part) {
        whole.narrow(0, begin, part.numel()).copy_(part);
      });
}

absl::Status ShardedAdamW::Exchange(at::TensorOptions options,
                                    const std::function<void(int64_t begin, at::Tensor part)>& fill,
                                    const TakePart& take) {
  for (int64_t begin = 0; begin < stride_; begin += part_) {
    const int64_t length = std::min(part_, stride_ - begin);
    const at::Tensor sent = at::zeros({length}, options);
    const int64_t filled = std::clamp<int64_t>(own_ - begin, 0, length);
    if (filled > 0) fill(begin, sent.narrow(0, 0, filled));
    at::Tensor all = at::empty({ranks_.size() * length}, options);
    OXBOW_RETURN_IF_ERROR(ranks_.AllGather(sent, all));
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const int64_t to = std::min(length_, stride_ * rank + begin);
      const int64_t count = std::min(length, length_ - to);
      if (count > 0) take(to, all.narrow(0, rank * length, count));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<AdamWState> ShardedAdamW::Gather() {
  AdamWState state = Piece();
  if (ranks_.size() == 1) return state;
  for (at::Tensor* const moment : {&state.first, &state.second}) {
    const at::Tensor own = moment->to(ranks_.device());
    *moment = at::empty({length_}, own.options());
    OXBOW_RETURN_IF_ERROR(GatherWhole(own, *moment));
  }
  return state;
}

void ShardedAdamW::Restore(const AdamWState& state) {
  piece_.Restore(
      {.first = Own(state.first), .second = Own(state.second), .updates = state.updates});
}

void ShardedAdamW::RestorePart(int64_t begin, const at::Tensor& first, const at::Tensor& second) {
  const int64_t from = std::max(begin, begin_);
  const int64_t end = std::min(begin + first.numel(), begin_ + own_);
  if (from >= end) return;
  piece_.RestorePart(from - begin_, first.narrow(0, from - begin, end - from),
                     second.narrow(0, from - begin, end - from));
}

}  // namespace oxbow::rl
