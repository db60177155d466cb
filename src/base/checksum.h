// XXH3-128 of bytes: finds damage on the way at the speed of memory. It is no signature: whoever
// means to can make bytes with a given checksum. For names of content see sha256.h.
#pragma once

#include <string>
#include <string_view>

namespace oxbow {

inline constexpr size_t kChecksumBytes = 16;

std::string Checksum128(std::string_view bytes);  // 16 raw bytes, big-endian.

}  // namespace oxbow
