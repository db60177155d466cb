// SPDX-License-Identifier: Apache-2.0
// Bytes as a PNG whose checksums fit: mutations would never get past them.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace oxbow::fuzz {

// Writes the checksum of each chunk:
//
//   length: u32 | type: 4 bytes | data | CRC-32 of type and data: u32, after a signature of 8
//   bytes.
inline std::string WithChecksums(std::string png) {
  constexpr size_t kSignature = 8, kAround = 12;
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<uint8_t>(png[at])); };
  for (size_t at = kSignature; at + kAround <= png.size();) {
    const size_t length = byte(at) << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3);
    if (length > png.size() - at - kAround) break;
    const uLong sum = crc32(0, reinterpret_cast<const Bytef*>(png.data() + at + 4),
                            static_cast<uInt>(length + 4));
    for (size_t i = 0; i < 4; ++i) {
      png[at + 8 + length + i] = static_cast<char>(sum >> (24 - 8 * i) & 0xff);
    }
    at += kAround + length;
  }
  return png;
}

}  // namespace oxbow::fuzz
