// SPDX-License-Identifier: Apache-2.0
// `oxbow validate`: the work and needs of a run before it starts: batch arithmetic, which steps are
// kept, memory. The functions below are pure.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "config/validate.h"
#include "core/flow/dynamics.h"
#include "oxbow/v1/config.pb.h"
#include "run/model_facts.h"

namespace oxbow::cli {

// Independent of workers and ranks.
std::string BatchText(const v1::RunConfig& config);

// Noise level and sensitivity kc of every step, and i_off: how many transitions of a stored
// trajectory are replayed and weighted.
std::string StepTable(const v1::RunConfig& config, const flow::SamplingSpec& sampling);

// The size of the pictures: an image's or a video's, and its latent.
std::string PictureText(const run::ModelFacts& facts);

// "evaluations            training waits for them, by checkpoint.best". Empty if there are none.
std::string EvaluationText(const v1::RunConfig& config);

// All of the above. kInvalidArgument if the sampling settings make no schedule.
absl::StatusOr<std::string> RunPlanText(const v1::RunConfig& config, const run::ModelFacts& facts);

}  // namespace oxbow::cli
