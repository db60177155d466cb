// SPDX-License-Identifier: Apache-2.0
// A whole path of core/flow/dpmpp.h.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "core/flow/dpmpp.h"

namespace oxbow::flow {

// Solves from `start` [B, ..] at sigmas.front() to sigmas.back().
template <typename Velocity>
at::Tensor SolveDpmpp(DpmppKind kind, const std::vector<double>& sigmas, const at::Tensor& start,
                      const Velocity& velocity) {
  DpmppSolver solver(kind);
  at::Tensor x = start;
  for (size_t i = 0; i + 1 < sigmas.size(); ++i) {
    const at::Tensor v = velocity(x, at::full({x.size(0)}, sigmas[i], x.options()));
    x = solver.Step(x, v, sigmas[i], sigmas[i + 1], i + 2 == sigmas.size());
  }
  return x;
}

}  // namespace oxbow::flow
