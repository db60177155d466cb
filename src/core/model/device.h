// Which device weights live on. Latents, noise and everything that is not a network stay on the
// CPU: a network takes its inputs to where its weights are and its velocities back.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "absl/status/statusor.h"

namespace oxbow::model {

int GpuCount();

// "cpu", "cuda:N", or "cuda" for the GPU of number `local_rank`. kInvalidArgument for another name,
// kUnavailable if there is no such device or the library was built without it.
absl::StatusOr<at::Device> DeviceNamed(const std::string& name, int local_rank = 0);

}  // namespace oxbow::model
