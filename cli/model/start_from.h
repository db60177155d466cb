// SPDX-License-Identifier: Apache-2.0
// `oxbow train --from RUN[@CHECKPOINT]`: a new run that starts from what another one has trained,
// or from an adapter's file. Only weights pass over: the optimiser, the counters and the replay
// buffer are new.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "oxbow/v1/config.pb.h"
#include "run/start_weights.h"

namespace oxbow::cli {

struct StartFrom {
  std::string run;  // Its directory.
  std::string checkpoint = "newest";
};

// "runs/old@best", "runs/old@40", "runs/old". A part behind @ that names no checkpoint belongs to
// the path.
StartFrom ParseStartFrom(const std::string& text);

// The weights for a run of `config`: the running average where there is one. kNotFound without the
// run or checkpoint; kInvalidArgument if one of the two runs trains all weights and the other an
// adapter, or an adapter of a larger rank or other modules; kFailedPrecondition if they do not fit
// the model of `config`.
absl::StatusOr<run::StartWeights> StartWeightsFrom(const std::string& text,
                                                   const v1::RunConfig& config);

}  // namespace oxbow::cli
