// SPDX-License-Identifier: Apache-2.0
// For any bytes: a safetensors file is refused, or its tensors lie inside it, match their shapes,
// and survive a write and a read.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow::io;  // NOLINT: a file of one function.
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto header = ParseSafetensorsHeader(bytes);
  const auto file = ParseSafetensors(bytes, "fuzz");
  OXBOW_CHECK(header.ok() == file.ok()) << header.status().ToString() << file.status().ToString();
  if (!header.ok()) {
    OXBOW_CHECK(file.status().code() == absl::StatusCode::kDataLoss ||
                file.status().code() == absl::StatusCode::kFailedPrecondition)
        << file.status().ToString();
    return 0;
  }
  uint64_t covered = 0;
  for (const auto& [name, entry] : header->entries) {
    OXBOW_CHECK(entry.begin <= entry.end && entry.end <= size) << name;
    covered += entry.end - entry.begin;
    const TensorBytes& tensor = file->tensors.at(name);
    OXBOW_CHECK(Validate(tensor).ok()) << name;
    OXBOW_CHECK(tensor.data == bytes.substr(entry.begin, entry.end - entry.begin)) << name;
  }
  uint64_t header_bytes = 0;
  for (size_t i = 8; i-- > 0;) header_bytes = header_bytes << 8 | data[i];
  OXBOW_CHECK(covered == size - 8 - header_bytes) << covered << " bytes of tensors in " << size;
  const auto again = ParseSafetensors(SerializeSafetensors(*file), "written");
  OXBOW_CHECK(again.ok()) << again.status().ToString();
  OXBOW_CHECK(again->tensors.size() == file->tensors.size()) << again->tensors.size();
  return 0;
}
