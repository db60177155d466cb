// SPDX-License-Identifier: Apache-2.0
// The scale of guidance that a network takes as an input, such as FLUX.1-dev's: not classifier-free
// guidance, which is sampling.guidance and asks the network twice.
#pragma once

#include <filesystem>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "config/validate.h"
#include "core/model/architecture.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::run {

// Execution::embedded_guidance of a run: sampling.embedded_guidance, or the architecture's
// own where that is 0; 0 for a network that takes none. A resolved config resolves to itself.
// kInvalidArgument names the key: it is set and the network takes none, or neither it nor the
// network's graph says a scale.
absl::StatusOr<double> EmbeddedGuidance(const model::Architecture& architecture,
                                        const v1::SamplingConfig& config);

// Settings that destroy a model distilled to few steps, which was never trained to recover from
// noise that a step adds, and has its guidance within (docs/models.md): a warning for large noise
// and for guidance, `guidance` in the usual formula (io::GuidanceScale); nothing for models that
// are not distilled.
std::vector<config::Problem> CheckDistilled(const std::filesystem::path& model,
                                            const v1::SamplingConfig& sampling, double guidance);

// kInvalidArgument, in the words of sampling.guidance, for a scale that the model's pipeline would
// ignore: pictures with it would not be those of the pipeline.
absl::Status CheckTakesGuidance(const std::filesystem::path& model, double guidance);

}  // namespace oxbow::run
