// SPDX-License-Identifier: Apache-2.0
// The keys of scheduler_config.json, for both classes of schedulers: which are read, which have one
// value here, and which say nothing about a grid of noise levels.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"

namespace oxbow::io {

// kFailedPrecondition for a key whose value asks for another grid or step than there is here, and
// for a key that is not known and not null. Keys that begin with "_" are not read, and null is the
// default. Requires a JSON object.
absl::Status CheckSchedulerKeys(bool unipc, const nlohmann::json& config);

}  // namespace oxbow::io
