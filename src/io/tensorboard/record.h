// TensorBoard's framing of records in an event file (the TFRecord format):
//
//   u64 LE length | u32 LE masked CRC of the length | payload | u32 LE masked CRC of the payload
//
// with CRC-32C (Castagnoli) and mask(c) = rotr(c, 15) + 0xa282ead8 mod 2^32.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow::io {

// CRC-32C: reflected polynomial 0x82f63b78; "123456789" gives 0xe3069283.
uint32_t Crc32c(std::string_view bytes);

uint32_t MaskedCrc32c(std::string_view bytes);

std::string FrameRecord(std::string_view payload);

// Returns the payloads. A record cut short at the end, as a crash leaves it, is ignored; kDataLoss
// with the offset if a checksum does not match.
absl::StatusOr<std::vector<std::string>> ReadRecords(std::string_view file);

}  // namespace oxbow::io
