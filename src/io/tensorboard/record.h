// SPDX-License-Identifier: Apache-2.0
// The bytes of TensorBoard's event files: records (the TFRecord format), each with a protobuf
// message as its payload.
//
//   u64 LE length | u32 LE masked CRC of the length | payload | u32 LE masked CRC of the payload
//
// with the masked CRC-32C of base/checksum.h.
#pragma once

#include <string>
#include <string_view>

namespace oxbow::io {

std::string FrameRecord(std::string_view payload);

// The little of the protobuf wire format that writing events takes, so that io needs no protobuf. A
// message is built field by field, in the order of the calls.
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
