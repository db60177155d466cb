#include "io/tensorboard/wire.h"

#include <bit>

namespace oxbow::io {
namespace {

enum WireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

template <typename Unsigned>
void AppendLittleEndian(std::string& out, Unsigned value) {
  for (size_t i = 0; i < sizeof value; ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
}

}  // namespace

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
  AppendLittleEndian(bytes_, std::bit_cast<uint64_t>(value));
  return *this;
}

WireMessage& WireMessage::Float(int field, float value) {
  Tag(field, kFixed32);
  AppendLittleEndian(bytes_, std::bit_cast<uint32_t>(value));
  return *this;
}

WireMessage& WireMessage::Bytes(int field, std::string_view value) {
  Tag(field, kLengthDelimited);
  Varint(value.size());
  bytes_ += value;
  return *this;
}

}  // namespace oxbow::io
