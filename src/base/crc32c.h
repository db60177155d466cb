// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli): reflected polynomial 0x82f63b78; "123456789" gives 0xe3069283. Record
// formats of TensorBoard and RocksDB check their records with it.
#pragma once

#include <cstdint>
#include <string_view>

namespace oxbow {

uint32_t Crc32c(std::string_view bytes);

// The CRC of what `crc` is of, followed by `bytes`.
uint32_t ExtendCrc32c(uint32_t crc, std::string_view bytes);

// rotr(crc, 15) + 0xa282ead8 mod 2^32: a CRC of bytes that hold CRCs would be weak.
uint32_t MaskCrc32c(uint32_t crc);

}  // namespace oxbow
