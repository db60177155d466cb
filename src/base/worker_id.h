// SPDX-License-Identifier: Apache-2.0
// The names that a worker may have. They come from the wire and go into logs, tables and metrics.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace oxbow {

// OK for 1 to 128 letters, digits and characters of "-_.:@/". kInvalidArgument otherwise.
absl::Status CheckWorkerId(std::string_view id);

// The common part of the names of one worker's processes: "gpu-a" for "gpu-a", "gpu-a.1" and
// "gpu-a.12". A name whose rest would have no letter stays as it is: 10.0.0.7 is an address.
std::string_view BaseWorkerId(std::string_view id);

}  // namespace oxbow
