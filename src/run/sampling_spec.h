// How a config samples.
#pragma once

#include "absl/status/statusor.h"
#include "core/flow/dynamics.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::run {

// How a run samples. The spec's flags are the steps that some learner step takes stochastically.
// kInvalidArgument names a setting that is unspecified or out of range. Requires a resolved
// sampling.shift (not 0): the learner reads the model's own value and fills it in.
absl::StatusOr<flow::SamplingSpec> SamplingSpecFromConfig(const v1::SamplingConfig& config);

// How held-out images are drawn: along the run's grid without noise, with the steps and the
// solver of `eval`. Errors as above.
absl::StatusOr<flow::SamplingSpec> EvaluationSpecFromConfig(const v1::RunConfig& config);

}  // namespace oxbow::run
