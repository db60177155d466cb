// SPDX-License-Identifier: Apache-2.0
// What scheduler_config.json says about noise levels. Steps are taken by flow::SamplePaths, so that
// the keys of a scheduler's own solver mean nothing here.
//
// FlowMatchEulerDiscreteScheduler   shift, or use_dynamic_shifting with its four numbers
// UniPCMultistepScheduler           flow_shift, with use_flow_sigmas and flow_prediction
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "io/diffusers_directory.h"

namespace oxbow::io {

// Whether the class is UniPCMultistepScheduler, whose grid and whole timesteps are then what
// diffusers does by default.
bool IsUnipcScheduler(const DiffusersComponent& scheduler);

// The time shift of a scheduler for images of so many transformer tokens: static, 1 if it has
// none, or exponential in the tokens where the scheduler says so. kFailedPrecondition for another
// form, and with the key for a UniPC scheduler of another grid or an unknown key; kDataLoss for a
// shift that is no positive number.
absl::StatusOr<double> SchedulerShift(const DiffusersComponent& scheduler, int64_t image_tokens);

// The time shift with which a pipeline draws such an image in so many steps: that of its scheduler,
// but for FLUX.2, which has its own rule in place of a dynamic one. Errors as SchedulerShift.
absl::StatusOr<double> PipelineShift(const DiffusersComponents& components, int64_t image_tokens,
                                     int64_t steps);

}  // namespace oxbow::io
