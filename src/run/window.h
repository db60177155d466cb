// Which steps of a config are stochastic, and when.
#pragma once

#include "absl/status/statusor.h"
#include "core/flow/window.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::run {

// Which steps may be stochastic and which are, when; the last step never is: its density is so
// narrow that rounding alone would move it. Holds that are left to the kind are filled in.
// kInvalidArgument with the key and its fix for settings that leave nothing to train.
absl::StatusOr<flow::WindowPlan> WindowFromConfig(const v1::SamplingConfig& config);

}  // namespace oxbow::run
