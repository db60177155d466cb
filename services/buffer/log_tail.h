// SPDX-License-Identifier: Apache-2.0
// The end of a RocksDB log (WAL).
//
// A power loss may cut the record that was being written. RocksDB drops such a record, which nobody
// was told of: it takes a record that is longer than the rest of its file for one. A record that
// was synced and of which the length has rotted looks the same, and would go in silence, with all
// behind it in its block. It can be told by its checksum, which fits a shorter length.
//
//   log     blocks of 32 KiB, the last one shorter; a record lies in one block
//   record  masked CRC-32C of type and bytes: u32 | length: u16 | type: u8 | bytes  (little-endian)
#pragma once

#include <filesystem>

#include "absl/status/status.h"

namespace oxbow::buffer {

// kDataLoss if a log in the database's directory ends in a record with a rotten length. Other
// damage of a log is for RocksDB to find.
absl::Status CheckLogTails(const std::filesystem::path& database);

}  // namespace oxbow::buffer
