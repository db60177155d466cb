// SPDX-License-Identifier: Apache-2.0
// The case of a device that has no room for a tensor, or is lost: what to do and what to say.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace oxbow::model {

// "tried to allocate 2.00 GiB; cuda:0 has 79.10 GiB, of which at most 74.21 GiB were in use at
// once". Of devices that do not count, the first line of what torch says.
std::string MemoryText(const c10::OutOfMemoryError& error);

// "host memory: tried to allocate 4.00 GiB" where an error says that the host had no room, for
// plain or for pinned memory; nothing for other errors.
std::optional<std::string> HostMemoryText(const std::exception& error);

// A DeviceError (base/exit_code.h) with torch's message, in one line, where CUDA answers with an
// error that is no want of memory: then it answers so for as long as the process lives. Its exit
// code is kExitDeviceLost, or kExitUsage where this build or the driver does not fit the GPU and
// another process would be answered the same. Nothing for other errors.
std::optional<absl::Status> DeviceErrorOf(const std::exception& error);

// The size of the smallest GPU of this machine; 0 without one.
uint64_t GpuBytes();

// f(first, count) for all of `rows`, one after another, at most `rows_max` at a time. Where memory
// is too small for a portion it goes on with half as many, and `rows_max` stays there; a single row
// that does not fit is torch's error. `what` names the rows in the log.
at::Tensor InPortions(int64_t rows, std::atomic<int64_t>& rows_max, std::string_view what,
                      const std::function<at::Tensor(int64_t first, int64_t count)>& f);

// Calls `run`. Where torch runs out of memory in it, returns an error (base/exit_code.h) of one
// line: MemoryText and `remedy`, which says what to change, or HostMemoryText; or DeviceErrorOf.
absl::Status WithMemoryFor(const std::function<absl::Status()>& run, std::string_view remedy);

}  // namespace oxbow::model
