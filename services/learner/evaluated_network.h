// SPDX-License-Identifier: Apache-2.0
// The network whose pictures an evaluation draws, for as long as this lives: the running average
// where the run keeps one and `eval.use_ema` says so, else what is trained. The same on every rank.
#pragma once

#include <optional>

#include "core/model/policy.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::learner {

class EvaluatedNetwork {
 public:
  EvaluatedNetwork(const v1::RunConfig& config, model::Policy& policy) : policy_(policy) {
    if (config.eval().use_ema() && config.ema().enabled()) average_.emplace(policy);
  }

  const model::VelocityModel& network() const {
    return average_.has_value() ? average_->network() : policy_.current();
  }

  // Its trained part.
  model::ParameterSet& parameters() const {
    const bool apart = average_.has_value() && !policy_.average_on_host();
    return apart ? policy_.ema_parameters() : policy_.parameters();
  }

 private:
  model::Policy& policy_;
  std::optional<model::AverageInUse> average_;
};

}  // namespace oxbow::learner
