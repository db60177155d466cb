// SPDX-License-Identifier: Apache-2.0
// AdamW (arXiv:1711.05101) over one flat tensor, numerically as torch.optim.AdamW, on one rank or
// with its moments spread over several; the schedule of its learning rate; and the two other things
// done to flat tensors once per update: limiting the gradient's norm, and the running average
// (EMA).
//
// Spread over ranks, each updates the piece it holds and all share results:
//
//   sum    <- reduce-scatter(gradient)            one piece per rank
//   norm   <- √(all-reduce(|piece|²))
//   piece of the next weights <- AdamW(piece)     elementwise, so the same bits as on the whole
//   next weights <- all-gather(pieces)            in the gradient's memory
//   weights, moments <- the next ones             once no other rank is needed any more
//
// So a failed collective leaves weights and moments as they were, without a copy of them. Where no
// rank holds a whole gradient there is no such memory: the caller takes the next weights as they
// come. Those that take the place of the old ones are back after a failure if a copy was kept.
//
// Pieces have equal lengths, multiples of 64 elements, so that no element changes its place between
// the vectorised part of a kernel and its scalar end; the last ones may be short or empty.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "core/parallel/host_copy.h"

namespace oxbow::parallel {
class Ranks;
}

namespace oxbow::rl {

struct AdamWOptions {
  double learning_rate = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-4;  // Decoupled: weights shrink by learning_rate * weight_decay.
  int warmup_updates = 0;      // The rate rises linearly and is whole at this update.
  int64_t exchanged_max = int64_t{1} << 24;  // Elements in one collective, of all ranks.
};

enum class RateShape { kConstant, kLinear, kCosine };

// How the learning rate falls over a run: rate(s) = learning_rate * factor(s), where s is the
// learner step, counted from 0, and n the number of steps over which it falls:
//
//   constant   1
//   linear     1 - (1 - to) min(s / n, 1)
//   cosine     to + (1 - to) (1 + cos(pi min(s / n, 1))) / 2
//
// Warm-up counts optimiser updates and multiplies this factor.
struct RateSchedule {
  RateShape shape = RateShape::kConstant;
  uint64_t steps = 0;  // n; 0: `to` at once.
  double to = 0.1;
};

// factor(step). Pure.
double RateFactorAt(const RateSchedule& schedule, uint64_t step);

// The state in a checkpoint: independent of the number of ranks.
struct AdamWState {
  at::Tensor first;   // [N]
  at::Tensor second;  // [N]
  int64_t updates = 0;
};

// A copy of one rank's moments.
struct HostMoments {
  parallel::HostCopy first;
  parallel::HostCopy second;
  int64_t updates;
};

// Where moments are: with the weights, or in host memory (pinned, where weights are on a GPU). The
// bits of an update are the same.
enum class MomentPlace { kWithWeights, kHost };

class AdamW {
 public:
  // Moments start at zero, with the length of `flat` [N]. Weights in host memory may be updated on
  // another `device`, to which their pieces are sent: gradients are there, and so are moments
  // "with the weights".
  AdamW(AdamWOptions options, const at::Tensor& flat, MomentPlace place = MomentPlace::kWithWeights,
        std::optional<at::Device> device = {});

  // One update of `flat` in place. `rate_factor` is the caller's schedule at this update. Returns
  // the squared length of the change, a float64 number on the device of `flat`. Works in pieces,
  // for which alone memory is allocated. `narrow`, unless undefined, gets the result in its type.
  at::Tensor Step(at::Tensor& flat, const at::Tensor& grad, double rate_factor = 1,
                  const at::Tensor& narrow = {});

  // The same update in two halves. Propose writes the next weights of the elements from `begin` on
  // to `next`, which must not overlap the others, and changes nothing else; `flat`, `grad` and
  // `next` are as long as each other. Returns the squared length of the change. Commit takes the
  // moments past the update.
  at::Tensor Propose(int64_t begin, const at::Tensor& flat, const at::Tensor& grad,
                     double rate_factor, at::Tensor& next) const;
  void Commit(const at::Tensor& grad);

  double learning_rate() const;  // At the next update, without the caller's schedule.
  int64_t updates() const { return updates_; }

  // The moments, copied into host memory. CopyToHost waits for nothing: a GPU may still be writing
  // its result, and what is in host memory already is shared until an update writes to it.
  AdamWState State() const;
  HostMoments CopyToHost() const;
  void PutBack(const HostMoments& moments);

  // Puts back a saved state, whole or from element `begin` on. Lengths must fit.
  void Restore(const AdamWState& state);
  void RestorePart(int64_t begin, const at::Tensor& first, const at::Tensor& second);
  void SetUpdates(int64_t updates) { updates_ = updates; }

 private:
  // Calls `use` with the moments of [begin, begin + length) on the weights' device: views, or
  // copies of what is in host memory. `Change` takes back what `use` makes of them.
  using UseMoments = std::function<void(at::Tensor& first, at::Tensor& second)>;
  void Look(int64_t begin, int64_t length, const UseMoments& use) const;
  void Change(int64_t begin, int64_t length, const UseMoments& use);
  void MoveMoments(const at::Tensor& grad, at::Tensor& first, at::Tensor& second) const;
  void MoveWeights(double rate_factor, const at::Tensor& first, const at::Tensor& second,
                   at::Tensor& weights) const;

  const AdamWOptions options_;
  const int64_t length_;
  const at::Device device_;    // Where it computes.
  at::Tensor first_, second_;  // Undefined where the host has them.
  std::optional<parallel::HostCopy> host_first_, host_second_;
  int64_t updates_ = 0;
};

// |a - b|² of [N], a float64 number, summed in pieces on `device`, by default that of a.
at::Tensor SquaredDistance(const at::Tensor& a, const at::Tensor& b,
                           std::optional<at::Device> device = {});

// Scales `grad` in place so that its norm is at most `norm_max` (0: never) and returns the norm
// before. LimitNorm scales a gradient, or a part of one, whose norm is known.
double ClipGradNorm(at::Tensor& grad, double norm_max);
void LimitNorm(double norm, double norm_max, at::Tensor& grad);

// The norm of a vector that is added piece by piece, in order. How it is cut changes no bit.
class NormOfPieces {
 public:
  void Add(const at::Tensor& piece);  // Float32, always on one device.
  double Norm();

 private:
  void Count();

  at::Tensor block_;  // Not counted yet.
  int64_t filled_ = 0;
  at::Tensor square_;  // A float64 number.
};

// min((1 + k) / (10 + k), decay_max) after k updates: short memory at first.
double EmaDecay(int64_t updates, double decay_max);

// average <- decay average + (1 - decay) current, in place. What is not on `device`, by default
// that of `current`, is sent there, and the average back, piece by piece.
void UpdateEma(at::Tensor& average, const at::Tensor& current, double decay,
               std::optional<at::Device> device = {});

class ShardedAdamW {
 public:
  // For weights of the length of `flat` [N]; its device, or `device`, as AdamW has it. `ranks`
  // outlives the optimiser.
  ShardedAdamW(AdamWOptions options, const at::Tensor& flat, parallel::Ranks& ranks,
               MomentPlace place = MomentPlace::kWithWeights,
               std::optional<at::Device> device = {});

  // Takes this rank's gradient `grad` [N], sums it over ranks and limits the norm of the sum to
  // `norm_max` (0: never). Returns the norm before, the same on every rank; a caller who finds it
  // not finite leaves Step out. Step writes to the memory of `grad`. Errors of these calls as in
  // ranks.h.
  absl::StatusOr<double> Reduce(const at::Tensor& grad, double norm_max);

  // For a gradient that is already the limited sum, the same on every rank.
  void TakeReduced(const at::Tensor& grad);

  // For ranks that hold the sum's pieces alone: `own` is this rank's, elements [begin(), begin() +
  // own_length()) of it, whose memory is used. TakePiece limits the norm of the whole and returns
  // it as Reduce does; TakeLimitedPiece is for pieces that are limited.
  absl::StatusOr<double> TakePiece(at::Tensor own, double norm_max);
  void TakeLimitedPiece(at::Tensor own);
  int64_t begin() const { return begin_; }
  int64_t own_length() const { return own_; }
  int64_t stride() const { return stride_; }

  // Updates `flat` [N], the same on every rank, by the gradient taken last. Returns the squared
  // length of the change as AdamW::Step does. After an error nothing has changed; after one with a
  // gradient in pieces, a part of `flat` may have. `narrow` as AdamW has it, for one rank.
  absl::StatusOr<at::Tensor> Step(at::Tensor& flat, double rate_factor = 1,
                                  const at::Tensor& narrow = {});
  // The same for a gradient in pieces, but `take` gets the next weights, part by part with its
  // place, on the device of the gradient. What `take` has queued there is done, and every rank has
  // taken all, when this returns a value.
  using TakePart = std::function<void(int64_t begin, const at::Tensor& part)>;
  absl::StatusOr<at::Tensor> StepInto(const TakePart& take, const at::Tensor& flat,
                                      double rate_factor = 1);

  double learning_rate() const { return piece_.learning_rate(); }
  int64_t updates() const { return piece_.updates(); }

  // This rank's part, copied into host memory as AdamW has it: its moments have the piece's
  // length.
  AdamWState Piece() const { return piece_.State(); }
  HostMoments CopyToHost() const { return piece_.CopyToHost(); }
  void PutBack(const HostMoments& moments) { piece_.PutBack(moments); }

  absl::StatusOr<AdamWState> Gather();    // On every rank. Collective.
  void Restore(const AdamWState& state);  // Saved with any number of ranks.
  // Elements [begin, begin + n) of the whole moments, of which this rank takes its own.
  void RestorePart(int64_t begin, const at::Tensor& first, const at::Tensor& second);
  void SetUpdates(int64_t updates) { piece_.SetUpdates(updates); }

 private:
  at::Tensor Own(const at::Tensor& whole) const;  // A view of this rank's piece.
  absl::StatusOr<double> LimitOwn(at::Tensor own, double norm_max);
  // Both work in pieces of every rank's share, and allocate memory for one of them.
  absl::Status ScatterSum(const at::Tensor& whole, at::Tensor& own);
  absl::Status GatherWhole(const at::Tensor& own, at::Tensor& whole);
  // Calls `fill` with the place and the memory of each part of this rank's piece, then `take` with
  // what each rank filled in, and its place in the whole.
  absl::Status Exchange(at::TensorOptions options,
                        const std::function<void(int64_t begin, at::Tensor part)>& fill,
                        const TakePart& take);

  parallel::Ranks& ranks_;
  const int64_t length_;  // N
  const int64_t part_;    // Elements of a piece in one collective.
  const int64_t stride_;  // Elements of a piece; ranks' pieces begin at multiples of it.
  const int64_t begin_;   // Where this rank's piece begins.
  const int64_t own_;     // Its length.
  AdamW piece_;
  at::Tensor grad_;    // [own_]
  at::Tensor memory_;  // [length_], the gradient's, for the next weights. Undefined: in place.
};

}  // namespace oxbow::rl
