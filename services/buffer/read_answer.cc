// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/read_answer.h"

#include <grpcpp/support/slice.h>

#include <string>
#include <vector>

namespace oxbow::buffer {
namespace {

// Shorter pieces are copied together: a slice costs as much as a few thousand bytes.
constexpr uint64_t kPieceBytesMin = uint64_t{16} << 10;

// The bytes before `size` bytes of a field of bytes or of a message: tag and length.
std::string Opening(int field, uint64_t size) {
  std::string opening;
  for (uint64_t value : {static_cast<uint64_t>(field) << 3 | 2, size}) {
    for (; value >= 0x80; value >>= 7) opening += static_cast<char>(value | 0x80);
    opening += static_cast<char>(value);
  }
  return opening;
}

// `inner` and the bytes behind it, in a field.
std::string Within(int field, const std::string& inner, uint64_t bytes) {
  return Opening(field, inner.size() + bytes) + inner;
}

// The message but for the latents, which come last.
std::string HeadOf(const v1::ReadResponse& message, uint64_t bytes) {
  using Chunk = v1::OfferRequest::Chunk;
  if (message.has_chunk()) {
    const std::string fields = message.chunk().SerializeAsString();
    return Within(v1::ReadResponse::kChunkFieldNumber,
                  fields + Opening(Chunk::kDataFieldNumber, bytes), bytes);
  }
  std::string head = Opening(v1::Tensor::kDataFieldNumber, bytes);
  head = Within(v1::Trajectory::kLatentsFieldNumber, head, bytes);
  head = Within(v1::ReplayEntry::kTrajectoryFieldNumber, head, bytes);
  head = message.whole().entries(0).SerializeAsString() + head;
  head = Within(v1::WholeEntries::kEntriesFieldNumber, head, bytes);
  return Within(v1::ReadResponse::kWholeFieldNumber, head, bytes);
}

// gRPC drops the reference once the bytes are sent.
grpc::Slice SliceOf(std::string_view piece, const std::shared_ptr<const void>& memory) {
  using Memory = std::shared_ptr<const void>;
  return grpc::Slice(
      const_cast<char*>(piece.data()), piece.size(),  // It is only read.
      [](void* held) { delete static_cast<Memory*>(held); }, new Memory(memory));
}

}  // namespace

grpc::ByteBuffer BytesOf(const ReadAnswer& answer) {
  const LatentPieces& latents = answer.latents;
  const uint64_t bytes = latents.bytes();
  if (bytes == 0) {
    const grpc::Slice whole(answer.message.SerializeAsString());
    return {&whole, 1};
  }
  std::vector<grpc::Slice> slices = {grpc::Slice(HeadOf(answer.message, bytes))};
  if (bytes / latents.pieces.size() < kPieceBytesMin) {
    slices.emplace_back(latents.Joined());
  } else {
    for (const std::string_view piece : latents.pieces) {
      slices.push_back(SliceOf(piece, latents.memory));
    }
  }
  return {slices.data(), slices.size()};
}

}  // namespace oxbow::buffer

grpc::Status grpc::SerializationTraits<oxbow::buffer::ReadAnswer>::Serialize(
    const oxbow::buffer::ReadAnswer& answer, grpc::ByteBuffer* buffer, bool* own_buffer) {
  *own_buffer = true;
  *buffer = oxbow::buffer::BytesOf(answer);
  return grpc::Status::OK;
}
