// SPDX-License-Identifier: Apache-2.0
// The format of torch.save before 1.6, which mmdetection still publishes in: pickles and then
// storages, one after the other.
//
//   pickle  a number that says so        pickle  of a dict: names to tensors
//   pickle  1001, the protocol           pickle  of a list: keys of storages
//   pickle  facts of the machine         of each key: elements u64, their bytes
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace oxbow::io {

struct LegacyCheckpoint {
  std::string_view pickle;                          // The dict.
  std::map<std::string, std::string_view> entries;  // "data/KEY" -> the bytes of a storage.
};

bool IsLegacyCheckpoint(std::string_view file);

// `width_of` gives the bytes of an element of a storage type ("torch FloatStorage"), 0 if there is
// no such type. Parts of `file`. kDataLoss if it is truncated or corrupt. Nothing in it is run.
absl::StatusOr<LegacyCheckpoint> ReadLegacyCheckpoint(
    std::string_view file, const std::function<uint64_t(std::string_view type)>& width_of);

}  // namespace oxbow::io
