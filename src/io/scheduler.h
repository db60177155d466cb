// SPDX-License-Identifier: Apache-2.0
// Noise levels by scheduler_config.json. Steps are taken by flow::SamplePaths, so that
// the keys of a scheduler's own solver mean nothing here.
//
// FlowMatchEulerDiscreteScheduler   shift, or use_dynamic_shifting with its four numbers;
//                                   shift_terminal
// UniPCMultistepScheduler           flow_shift, with use_flow_sigmas and flow_prediction
//
// Keys that change the grid or the step otherwise are refused, for both, and so are keys that are
// not known and not null. Keys that begin with "_" are not read, and null is the default.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/flow/schedule.h"
#include "io/diffusers_directory.h"

namespace oxbow::io {

// The noise levels along which a pipeline of diffusers draws; see flow::SigmaGrid.
struct PipelineSchedule {
  flow::ScheduleKind grid = flow::ScheduleKind::kDiffusersDefault;
  double shift = 1;
  double shift_terminal = 0;
  bool whole_timesteps = false;  // The network sees trunc(1000 sigma) / 1000.
};

// Whether the class is UniPCMultistepScheduler, which has a grid of its own and whole timesteps.
bool IsUnipcScheduler(const DiffusersComponent& scheduler);

// The time shift of a scheduler for images of so many transformer tokens: static, 1 if it has
// none, or exponential in the tokens where the scheduler says so. kFailedPrecondition for another
// form and for a key that is refused; kDataLoss for a shift that is no positive number.
absl::StatusOr<double> SchedulerShift(const DiffusersComponent& scheduler, int64_t image_tokens);

// How a pipeline draws such an image in so many steps. The shift is that of its scheduler, but for
// FLUX.2, which has its own rule in place of a dynamic one. With a `shift` above 0 that one is
// taken, and the scheduler's shift and its end are not read. Errors as SchedulerShift.
absl::StatusOr<PipelineSchedule> ReadPipelineSchedule(const DiffusersComponents& components,
                                                      int64_t image_tokens, int64_t steps,
                                                      double shift = 0);

}  // namespace oxbow::io
