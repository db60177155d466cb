// SPDX-License-Identifier: Apache-2.0
// ZIP archives whose entries are stored as they are, without compression: what torch.save writes.
//
// Reads the central directory at the end of the file (PKWARE APPNOTE 6.3, with Zip64). Trusts
// nothing: each entry lies within the file, and nothing is allocated but names.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace oxbow::io {

// Entries by name, as parts of `file`. Checksums are not looked at. kDataLoss if it is truncated or
// corrupt or no ZIP archive; kFailedPrecondition, naming the entry, if one is compressed or
// encrypted.
absl::StatusOr<std::map<std::string, std::string_view>> ReadStoredZip(std::string_view file);

}  // namespace oxbow::io
