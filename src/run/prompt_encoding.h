// SPDX-License-Identifier: Apache-2.0
// When the prompts of a run are encoded.
#pragma once

#include "oxbow/v1/config.pb.h"

namespace oxbow::run {

// Whether a run encodes later prompts while it trains, so that its text encoders stay: where they
// are on the CPU, in the way of no GPU, and one rank keeps what they say on its disk.
inline bool EncodesBesideTraining(const v1::RunConfig& config) {
  return config.learner().ranks() <= 1 && config.model().encoder_device() == "cpu" &&
         !config.prompts().cache().empty();
}

}  // namespace oxbow::run
