// SPDX-License-Identifier: Apache-2.0
// XXH3-128 of bytes: detects damage in transit at the speed of memory. It is not a signature: an
// attacker can make bytes with a given checksum. For content addresses see sha256.h.
#pragma once

#include <string>
#include <string_view>

namespace oxbow {

inline constexpr size_t kChecksumBytes = 16;

std::string Checksum128(std::string_view bytes);  // 16 raw bytes, big-endian.

}  // namespace oxbow
