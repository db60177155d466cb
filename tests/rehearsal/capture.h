// SPDX-License-Identifier: Apache-2.0
// CUDA graphs: while a thread captures, its kernels are written on a tape instead of being run.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/rehearsal/streams.h"

namespace oxbow::rehearsal {

// Kernels with the addresses they were captured with, in order.
using Tape = std::vector<Task>;

bool IsCapturing();
// The memory pool of what this thread captures; 0 outside of a capture.
uint64_t CapturePool();

// Requires that this thread does not capture.
void BeginCapture(uint64_t pool);
Tape EndCapture();

// Writes the task on this thread's tape; false if it does not capture.
bool AddToCapture(const Task& task);

}  // namespace oxbow::rehearsal
