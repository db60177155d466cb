// How many rows a run trains: a row is one sample at one noise level.
#pragma once

#include <cstdint>

#include "oxbow/v1/config.pb.h"

namespace oxbow::run {

// Rows of one sample: its trained steps, or the noise levels at which its final image is trained.
// 0 for settings that make no window.
uint64_t TrainedSteps(const v1::RunConfig& config);

// Rows whose gradients one backward pass of one rank computes.
uint64_t RowsOfPass(const v1::RunConfig& config);

}  // namespace oxbow::run
