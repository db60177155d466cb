// SPDX-License-Identifier: Apache-2.0
// Messages that are sent without a copy of their bytes: as slices of memory that somebody holds.
//
// On the wire such a message is the protobuf message of its .proto file. Here its type has a method
// Slices() in place of generated code. Protobuf fields may come in any order and in several slices.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace oxbow::rpc {

template <typename T>
concept SentInSlices = requires(const T& message) {
  { message.Slices() } -> std::same_as<std::vector<grpc::Slice>>;
};

// Bytes in `memory`, of which gRPC drops its reference once they are sent.
inline grpc::Slice SliceOf(std::string_view bytes, std::shared_ptr<const void> memory) {
  using Memory = std::shared_ptr<const void>;
  return grpc::Slice(
      const_cast<char*>(bytes.data()), bytes.size(),  // It is only read.
      [](void* held) { delete static_cast<Memory*>(held); }, new Memory(std::move(memory)));
}

// The bytes before `size` bytes of a field of bytes or of a message: tag and length.
inline std::string FieldOpening(int field, uint64_t size) {
  std::string opening;
  for (uint64_t value : {static_cast<uint64_t>(field) << 3 | 2, size}) {
    for (; value >= 0x80; value >>= 7) opening += static_cast<char>(value | 0x80);
    opening += static_cast<char>(value);
  }
  return opening;
}

}  // namespace oxbow::rpc

template <oxbow::rpc::SentInSlices T>
class grpc::SerializationTraits<T> {
 public:
  static grpc::Status Serialize(const T& message, grpc::ByteBuffer* buffer, bool* own_buffer) {
    const std::vector<grpc::Slice> slices = message.Slices();
    *own_buffer = true;
    *buffer = grpc::ByteBuffer(slices.data(), slices.size());
    return grpc::Status::OK;
  }
};
