// The little of the protobuf wire format that writing TensorBoard events takes, so that io needs no
// protobuf. A message is built field by field, in the order of the calls.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace oxbow::io {

class WireMessage {
 public:
  // int32, int64, enum and bool fields; negative numbers take ten bytes as protobuf wants.
  WireMessage& Integer(int field, int64_t value);
  WireMessage& Double(int field, double value);
  WireMessage& Float(int field, float value);
  // string, bytes and packed fields.
  WireMessage& Bytes(int field, std::string_view value);
  WireMessage& Message(int field, const WireMessage& value) { return Bytes(field, value.bytes_); }

  const std::string& bytes() const { return bytes_; }

 private:
  void Tag(int field, int wire_type);
  void Varint(uint64_t value);

  std::string bytes_;
};

}  // namespace oxbow::io
