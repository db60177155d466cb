// SPDX-License-Identifier: Apache-2.0
#include "io/tensorboard/record.h"

#include <bit>

#include "base/checksum.h"

namespace oxbow::io {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kCrcBytes = 4;

void AppendLittleEndian(std::string& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
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
