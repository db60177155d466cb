// SPDX-License-Identifier: Apache-2.0
#include "io/tensorboard/record.h"

#include <bit>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/checksum.h"

namespace oxbow::io {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kCrcBytes = 4;

void AppendLittleEndian(std::string& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
}

uint64_t LittleEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

enum WireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

uint32_t MaskedCrc32c(std::string_view bytes) { return MaskCrc32c(Crc32c(bytes)); }

}  // namespace

std::string FrameRecord(std::string_view payload) {
  std::string out;
  out.reserve(payload.size() + kLengthBytes + 2 * kCrcBytes);
  AppendLittleEndian(out, payload.size(), kLengthBytes);
  AppendLittleEndian(out, MaskedCrc32c(out), kCrcBytes);
  out += payload;
  AppendLittleEndian(out, MaskedCrc32c(payload), kCrcBytes);
  return out;
}

absl::StatusOr<std::vector<std::string>> ReadRecords(std::string_view file) {
  std::vector<std::string> payloads;
  size_t offset = 0;
  while (file.size() - offset >= kLengthBytes + kCrcBytes) {
    const std::string_view length_bytes = file.substr(offset, kLengthBytes);
    if (LittleEndian(file.substr(offset + kLengthBytes, kCrcBytes)) != MaskedCrc32c(length_bytes)) {
      return absl::DataLossError(absl::StrCat("event record with a bad length, offset ", offset));
    }
    const uint64_t length = LittleEndian(length_bytes);
    const size_t start = offset + kLengthBytes + kCrcBytes;
    if (file.size() - start < kCrcBytes || file.size() - start - kCrcBytes < length) break;
    const std::string_view payload = file.substr(start, length);
    if (LittleEndian(file.substr(start + length, kCrcBytes)) != MaskedCrc32c(payload)) {
      return absl::DataLossError(absl::StrCat("event record with a bad checksum, offset ", offset));
    }
    payloads.emplace_back(payload);
    offset = start + length + kCrcBytes;
  }
  return payloads;
}

void WireMessage::Varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
  bytes_ += static_cast<char>(value);
}

void WireMessage::Tag(int field, int wire_type) {
  Varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type));
}

WireMessage& WireMessage::Integer(int field, int64_t value) {
  Tag(field, kVarint);
  Varint(static_cast<uint64_t>(value));
  return *this;
}

WireMessage& WireMessage::Double(int field, double value) {
  Tag(field, kFixed64);
  AppendLittleEndian(bytes_, std::bit_cast<uint64_t>(value), sizeof value);
  return *this;
}

WireMessage& WireMessage::Float(int field, float value) {
  Tag(field, kFixed32);
  AppendLittleEndian(bytes_, std::bit_cast<uint32_t>(value), sizeof value);
  return *this;
}

WireMessage& WireMessage::Bytes(int field, std::string_view value) {
  Tag(field, kLengthDelimited);
  Varint(value.size());
  bytes_ += value;
  return *this;
}

}  // namespace oxbow::io
