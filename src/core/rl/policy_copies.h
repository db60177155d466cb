// SPDX-License-Identifier: Apache-2.0
// The copies of the policy that follow it from learner step to learner step: the old policy of
// DiffusionNFT and AWM, and a reference that moves. The running average follows update by update
// and is the trainer's.
//
// The old policy follows by old <- d old + (1 - d) policy, where d depends on the learner step s,
// counted from 1:
//
//   constant          d
//   power             min(d, (1 + s) / (w + s))
//   linear            d min(s / w, 1)
//   piecewise_linear  0 while s < flat, then min((s - flat) rate, d)
//
// DiffusionNFT's (arXiv:2509.16117) three are piecewise linear: rate 0; rate .001, d .5; flat 75,
// rate .0075, d .999. AWM's has rate .001, d .3.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/parallel/host_copy.h"

namespace oxbow::model {
class Policy;
}

namespace oxbow::rl {

enum class DecayShape { kConstant, kPower, kLinear, kPiecewiseLinear };

struct DecayOptions {
  DecayShape shape = DecayShape::kPiecewiseLinear;
  double decay = 0.5;  // d
  double rate = 0.001;
  uint64_t flat = 0;
  uint64_t warmup = 10;  // w
};

// d at learner step `step`. Pure.
double DecayAt(const DecayOptions& options, uint64_t step);

struct CopyOptions {
  DecayOptions old;         // Where the policy keeps an old one.
  int reference_every = 0;  // Learner steps after which the reference becomes the policy; 0: never.
  uint64_t reference_at = 0;  // The one after which it does so, too; 0: none.

  bool moves_reference() const { return reference_every > 0 || reference_at > 0; }
};

class PolicyCopies {
 public:
  // `policy` outlives it, and keeps the copies that `options` move.
  PolicyCopies(const CopyOptions& options, model::Policy& policy);

  // After learner step number `done` (counted from 1). Returns the decay of the old policy, or 0.
  double Follow(uint64_t done);

  // Flat weights [N] by name, copied into host memory: "old_policy", "reference". Nothing for
  // copies that stay.
  std::map<std::string, at::Tensor> State() const;

  // The same, as a checkpoint takes them: a GPU may still be writing.
  std::map<std::string, parallel::HostCopy> CopyToHost() const;

  // Requires the names and lengths of State().
  void Load(const std::map<std::string, at::Tensor>& state);

 private:
  std::map<std::string, at::Tensor> Moving() const;  // The flat weights themselves.

  const CopyOptions options_;
  model::Policy& policy_;
};

}  // namespace oxbow::rl
