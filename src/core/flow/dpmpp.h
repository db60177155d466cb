// SPDX-License-Identifier: Apache-2.0
// DPM-Solver++ in data prediction (arXiv:2211.01095) for the rectified-flow path: fewer network
// calls for deterministic sampling.
//
// alpha = 1 - s, lambda(s) = log alpha - log s, h = lambda(s') - lambda(s), m0 = x - s v:
//   order 1       x' = (s'/s) x - alpha' (e^-h - 1) m0               (equals the Euler step)
//   2M midpoint   .. - alpha' (e^-h - 1) D1 / 2,  D1 = (m0 - m1) / r0,  r0 = h_prev / h
//   2M heun       .. + alpha' ((e^-h - 1) / h + 1) D1
// lambda is infinite at s = 1 and at s' = 0; there the two-point form x' = (s'/s) x + (1 - s'/s) m0
// holds.
//
// Order control: the first step has order 1 (there is no m1), and so has the last one. After a
// stochastic step the solver starts again, because noise is not a derivative.
#pragma once

#include <ATen/core/Tensor.h>

namespace oxbow::flow {

enum class DpmppKind { kFirst, kMidpoint, kHeun };

// x' of an order-1 step. Requires s > s' >= 0.
at::Tensor DpmppFirst(const at::Tensor& x, const at::Tensor& m0, double sigma, double sigma_next);

// x' of a second-order step; `m1` is the data prediction at `sigma_prev`. Falls back to order 1
// where a lambda is infinite. Requires sigma_prev > sigma > sigma_next >= 0.
at::Tensor DpmppSecond(DpmppKind kind, const at::Tensor& x, const at::Tensor& m0,
                       const at::Tensor& m1, double sigma_prev, double sigma, double sigma_next);

// Takes deterministic steps in order and remembers the last data prediction.
class DpmppSolver {
 public:
  explicit DpmppSolver(DpmppKind kind) : kind_(kind) {}

  // x' at `sigma_next` from x and its velocity at `sigma`. `last`: order 1.
  at::Tensor Step(const at::Tensor& x, const at::Tensor& velocity, double sigma, double sigma_next,
                  bool last);

  // Keeps the data prediction of a step that is taken in another way.
  void Note(const at::Tensor& x, const at::Tensor& velocity, double sigma);

  // Forgets the last data prediction, because the next step starts from another path.
  void Restart() { data_.reset(); }

 private:
  const DpmppKind kind_;
  at::Tensor data_;  // Undefined: there is no earlier step.
  double sigma_ = 0;
};

}  // namespace oxbow::flow
