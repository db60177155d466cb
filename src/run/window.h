// Which steps of a config are stochastic, and when.
#pragma once

#include "absl/status/statusor.h"
#include "core/flow/window.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::run {

// The steps that may be stochastic, and which of them are in each learner step. The last step never
// is: its density is so narrow that rounding alone would move it. A hold of 0 becomes the default
// of the window's kind.
// kInvalidArgument with the key and its fix for settings that leave nothing to train.
absl::StatusOr<flow::WindowPlan> WindowFromConfig(const v1::SamplingConfig& config);

}  // namespace oxbow::run
