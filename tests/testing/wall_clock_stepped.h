// SPDX-License-Identifier: Apache-2.0
// The wall clock of an executable that links wall_clock_stepped.cc.
#pragma once

#include <atomic>
#include <cstdint>

// Seconds by which it is ahead of the kernel's.
extern "C" std::atomic<int64_t> oxbow_wall_clock_ahead;
