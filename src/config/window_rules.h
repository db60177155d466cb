// SPDX-License-Identifier: Apache-2.0
// Rules of `sampling.window` and `sampling.compression`, and which steps a window can reach.
#pragma once

#include <cstdint>

#include "config/findings.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

// Steps that may be stochastic in some learner step: [first, end).
struct Reach {
  uint64_t first = 0;
  uint64_t end = 0;
};
Reach ReachOf(const v1::SamplingConfig& s);

// Its steps differ from learner step to learner step.
bool WindowMoves(const v1::SamplingConfig& s);

// Rules of fewer steps behind the last stochastic one.
void CompressionRules(const v1::RunConfig& c, Findings& f);

// Requires sde_first and sde_count that are right.
void WindowRules(const v1::SamplingConfig& s, Findings& f);

}  // namespace oxbow::config
