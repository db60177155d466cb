// SPDX-License-Identifier: Apache-2.0
// SHA-256 of bytes, the content address of weight chunks and checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace oxbow {

std::string Sha256(std::string_view bytes);     // 32 raw bytes.
std::string Sha256Hex(std::string_view bytes);  // 64 hexadecimal digits.
std::string HexOf(std::string_view raw);

// First eight bytes of SHA-256, big-endian: a stable id for prompts and schedules.
uint64_t Fingerprint64(std::string_view bytes);

// The digest of bytes that come in pieces.
class Sha256Stream {
 public:
  Sha256Stream();
  Sha256Stream(Sha256Stream&&) noexcept;
  ~Sha256Stream();

  void Update(std::string_view bytes);
  uint64_t bytes() const { return bytes_; }  // So far.
  std::string Hex();                         // Call it once, last.

 private:
  struct Context;
  std::unique_ptr<Context> context_;
  uint64_t bytes_ = 0;
};

struct FileDigest {
  std::string sha256;  // 64 hexadecimal digits.
  uint64_t bytes = 0;
  bool operator==(const FileDigest&) const = default;
};

// A file of any size, read through a small buffer. Errors as ReadInPieces.
absl::StatusOr<FileDigest> DigestOfFile(const std::filesystem::path& path);

}  // namespace oxbow
