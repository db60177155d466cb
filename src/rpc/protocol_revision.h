// SPDX-License-Identifier: Apache-2.0
// The revision of the protocol that this build speaks.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace oxbow {

// Rises with a change after which a process of the former revision would be misunderstood: a field
// with another meaning, other numbers for the same bytes. A field that the other side may ignore
// changes nothing.
inline constexpr uint32_t kProtocolRevision = 1;

namespace rpc {

// kInvalidArgument (exit code 2), one line that names both sides and the fix, unless `peer` speaks
// this revision. `peer` and `self` are as "worker gpu-1"; `version` is that of the peer's binary,
// or empty. Revision 0: a build from before revisions.
absl::Status CheckRevision(const std::string& peer, uint32_t revision, const std::string& version,
                           const std::string& self);

// "worker gpu-1 is oxbow 1.3, the learner oxbow 1.2" for a peer of another build; else empty.
std::string OtherBuildText(const std::string& peer, const std::string& version,
                           const std::string& self);

}  // namespace rpc

}  // namespace oxbow
