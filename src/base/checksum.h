// SPDX-License-Identifier: Apache-2.0
// XXH3-128 of bytes: detects damage in transit at the speed of memory. It is not a signature: an
// attacker can make bytes with a given checksum. For content addresses see sha256.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace oxbow {

inline constexpr size_t kChecksumBytes = 16;

std::string Checksum128(std::string_view bytes);  // 16 raw bytes, big-endian.

// CRC-32C (Castagnoli): reflected polynomial 0x82f63b78; "123456789" gives 0xe3069283. Record
// formats of TensorBoard and RocksDB check their records with it.

uint32_t Crc32c(std::string_view bytes);

// The CRC of what `crc` is of, followed by `bytes`.
uint32_t ExtendCrc32c(uint32_t crc, std::string_view bytes);

// rotr(crc, 15) + 0xa282ead8 mod 2^32: a CRC of bytes that hold CRCs would be weak.
uint32_t MaskCrc32c(uint32_t crc);

}  // namespace oxbow
