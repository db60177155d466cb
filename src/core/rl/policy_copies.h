// The copies of the policy that follow it from learner step to learner step: the old policy of
// DiffusionNFT and AWM, and a reference that moves. The running average follows update by update
// and is the trainer's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/rl/options.h"

namespace oxbow::model {
class ParameterSet;
class Policy;
}  // namespace oxbow::model

namespace oxbow::rl {

class PolicyCopies {
 public:
  // `policy` outlives it, and keeps the copies that `options` move.
  PolicyCopies(const TrainerOptions& options, model::Policy& policy);

  // After learner step number `done` (counted from 1). Returns the decay of the old policy, or 0.
  double Follow(uint64_t done);

  // Flat weights [N] by name: "old_policy", "reference". Nothing for copies that stay.
  std::map<std::string, at::Tensor> State() const;

  // Requires the names and lengths of State().
  void Load(const std::map<std::string, at::Tensor>& state);

 private:
  const TrainerOptions& options_;
  model::Policy& policy_;
};

}  // namespace oxbow::rl
