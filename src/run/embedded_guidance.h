// SPDX-License-Identifier: Apache-2.0
// The scale of guidance that a network takes as an input, such as FLUX.1-dev's: not classifier-free
// guidance, which is sampling.guidance and asks the network twice.
#pragma once

#include "absl/status/statusor.h"
#include "core/model/architecture.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::run {

// Execution::embedded_guidance of a run: sampling.embedded_guidance, or the architecture's
// own where that is 0; 0 for a network that takes none. A resolved config resolves to itself.
// kInvalidArgument names the key: it is set and the network takes none, or neither it nor the
// network's graph says a scale.
absl::StatusOr<double> EmbeddedGuidance(const model::Architecture& architecture,
                                        const v1::SamplingConfig& config);

}  // namespace oxbow::run
