// SPDX-License-Identifier: Apache-2.0
// The revision of the protocol that this build speaks.
#pragma once

#include <cstdint>

namespace oxbow {

// Rises with a change after which a process of the former revision would be misunderstood: a field
// with another meaning, other numbers for the same bytes. A field that the other side may ignore
// changes nothing.
inline constexpr uint32_t kProtocolRevision = 1;

}  // namespace oxbow
