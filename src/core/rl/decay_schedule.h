// How fast a copy of the policy follows it: copy <- d copy + (1 - d) policy, d a function of the
// learner step s (counted from 1) or of the update.
//
//   constant          d
//   power             min(d, (1 + s) / (w + s))
//   linear            d0 + (d - d0) min(s / w, 1)
//   piecewise_linear  0 while s < flat, then min((s - flat) rate, d)
//   cosine            d0 + (d - d0) (1 - cos(pi min(s / N, 1))) / 2
//   warmup_cosine     linear from 0 to d0 over w, then cosine from d0 to d until N
//
// DiffusionNFT's (arXiv:2509.16117) three are piecewise linear: rate 0; rate .001, d .5; flat 75,
// rate .0075, d .999. AWM's has rate .001, d .3.
#pragma once

#include <cstdint>

namespace oxbow::rl {

enum class DecayShape { kConstant, kPower, kLinear, kPiecewiseLinear, kCosine, kWarmupCosine };

struct DecayOptions {
  DecayShape shape = DecayShape::kPiecewiseLinear;
  double decay = 0.5;  // d
  double start = 0;    // d0
  double rate = 0.001;
  uint64_t flat = 0;
  uint64_t warmup = 10;   // w
  uint64_t length = 100;  // N
  uint64_t every = 1;     // The copy follows after every so many learner steps.
};

// d at learner step `step`. Pure.
double DecayAt(const DecayOptions& options, uint64_t step);

}  // namespace oxbow::rl
