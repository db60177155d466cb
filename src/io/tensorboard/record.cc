#include "io/tensorboard/record.h"

#include <array>
#include <bit>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace oxbow::io {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kCrcBytes = 4;

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

void AppendLittleEndian(std::string& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
}

uint64_t LittleEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

enum WireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

uint32_t MaskedCrc32c(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  }
  return ~crc;
}

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
