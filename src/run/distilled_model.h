// SPDX-License-Identifier: Apache-2.0
// Settings that destroy a model distilled to few steps. It was never trained to recover from noise
// that a step adds, and has its guidance within (docs/models.md).
#pragma once

#include <filesystem>
#include <vector>

#include "absl/status/status.h"
#include "config/validate.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::run {

// A warning for large noise and for guidance, `guidance` in the usual formula (io::GuidanceScale);
// nothing for models that are not distilled.
std::vector<config::Problem> CheckDistilled(const std::filesystem::path& model,
                                            const v1::SamplingConfig& sampling, double guidance);

// kInvalidArgument, in the words of sampling.guidance, for a scale that the model's pipeline would
// ignore: pictures with it would not be those of the pipeline.
absl::Status CheckTakesGuidance(const std::filesystem::path& model, double guidance);

}  // namespace oxbow::run
