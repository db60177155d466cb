// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/log_tail.h"

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/checksum.h"
#include "base/status_macros.h"

namespace oxbow::buffer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlock = 32768;
constexpr size_t kHeader = 7;

uint32_t LittleEndian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

// Whether the record at the front has a checksum that fits fewer bytes than it says it has.
bool HasRottenLength(std::string_view record) {
  const uint32_t stored = LittleEndian(record.substr(0, 4));
  uint32_t crc = Crc32c(record.substr(6, 1));
  if (MaskCrc32c(crc) == stored) return true;
  for (size_t i = kHeader; i < record.size(); ++i) {
    crc = ExtendCrc32c(crc, record.substr(i, 1));
    if (MaskCrc32c(crc) == stored) return true;
  }
  return false;
}

absl::Status CheckLastBlock(const fs::path& log, std::string_view block) {
  while (block.size() >= kHeader) {
    const size_t length = LittleEndian(block.substr(4, 2));
    if (kHeader + length > block.size()) {
      if (!HasRottenLength(block)) return absl::OkStatus();
      return absl::DataLossError(absl::StrCat(
          "replay store is damaged: a record at the end of the log has rotted: ", log.string()));
    }
    block.remove_prefix(kHeader + length);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckLogTails(const fs::path& database) {
  std::error_code none;
  for (const auto& file : fs::directory_iterator(database, none)) {
    if (file.path().extension() != ".log") continue;
    const uintmax_t size = file.file_size(none);
    if (none || size == 0) continue;
    std::ifstream in(file.path(), std::ios::binary);
    in.seekg(static_cast<std::streamoff>((size - 1) / kBlock * kBlock));
    const std::string block((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    OXBOW_RETURN_IF_ERROR(CheckLastBlock(file.path(), block));
  }
  return absl::OkStatus();
}

}  // namespace oxbow::buffer
