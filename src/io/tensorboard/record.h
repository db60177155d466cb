// TensorBoard's framing of records in an event file (the TFRecord format):
//
//   u64 LE length | u32 LE masked CRC of the length | payload | u32 LE masked CRC of the payload
//
// with the masked CRC-32C of base/crc32c.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow::io {

std::string FrameRecord(std::string_view payload);

// Returns the payloads. A record cut short at the end, as a crash leaves it, is ignored; kDataLoss
// with the offset if a checksum does not match.
absl::StatusOr<std::vector<std::string>> ReadRecords(std::string_view file);

}  // namespace oxbow::io
