// AdamW whose moments are spread over ranks: each updates the piece it holds and all share results.
//
//   sum    <- reduce-scatter(gradient)            one piece per rank
//   norm   <- √(all-reduce(|piece|²))
//   piece of the weights <- AdamW(piece)          elementwise, so the same bits as on the whole
//   weights <- all-gather(pieces)
//
// Pieces have equal lengths, multiples of 64 elements, so that no element changes its place between
// the vectorised part of a kernel and its scalar end; the last ones may be short or empty.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/rl/adamw.h"

namespace oxbow::parallel {
class Ranks;
}

namespace oxbow::rl {

// What a checkpoint holds: independent of the number of ranks.
struct AdamWState {
  at::Tensor first;   // [N]
  at::Tensor second;  // [N]
  int64_t updates = 0;
};

class ShardedAdamW {
 public:
  // For weights of the length and device of `flat` [N]. `ranks` outlives the optimiser.
  ShardedAdamW(AdamWOptions options, const at::Tensor& flat, parallel::Ranks& ranks);

  // Takes this rank's gradient `grad` [N], sums it over ranks and limits the norm of the sum to
  // `norm_max` (0: never). Returns the norm before, the same on every rank; a caller who finds it
  // not finite leaves Step out. Errors of these calls as in ranks.h.
  absl::StatusOr<double> Reduce(const at::Tensor& grad, double norm_max);

  // For a gradient that is already the limited sum, the same on every rank.
  void TakeReduced(const at::Tensor& grad);

  // Updates `flat` [N], the same on every rank, by the gradient taken last.
  absl::Status Step(at::Tensor& flat, double rate_factor = 1);

  double learning_rate() const { return piece_.learning_rate(); }
  int64_t updates() const { return piece_.updates(); }

  // What this rank holds, copied: its moments have the piece's length.
  AdamWState Piece() const;
  void RestorePiece(const AdamWState& piece);

  absl::StatusOr<AdamWState> Gather();    // On every rank. Collective.
  void Restore(const AdamWState& state);  // Saved with any number of ranks.

 private:
  at::Tensor Own(const at::Tensor& whole) const;  // A view of this rank's piece.
  absl::StatusOr<at::Tensor> Whole(const at::Tensor& own);

  parallel::Ranks& ranks_;
  const int64_t length_;  // N
  const int64_t stride_;  // Elements of a piece; ranks' pieces begin at multiples of it.
  const int64_t begin_;   // Where this rank's piece begins.
  const int64_t own_;     // Its length.
  AdamW piece_;
  at::Tensor grad_;  // [own_]
};

}  // namespace oxbow::rl
