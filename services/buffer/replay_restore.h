// SPDX-License-Identifier: Apache-2.0
// How a replay store goes back to the content of an earlier moment.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "services/buffer/live_replay.h"

namespace oxbow::buffer {

// ReplayStore::Restore without the check of the caller's start. Requires a settled store that may
// change. At any moment it is wholly there or wholly not.
absl::Status RestoreTo(LiveReplay& live, const Caller& caller, const std::string& name,
                       const RestoreFor& wanted);

}  // namespace oxbow::buffer
