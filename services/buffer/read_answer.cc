// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/read_answer.h"

#include <string>
#include <vector>

namespace oxbow::buffer {
namespace {

// Shorter pieces are copied together: a slice costs as much as a few thousand bytes.
constexpr uint64_t kPieceBytesMin = uint64_t{16} << 10;

using rpc::FieldOpening;

// `inner` and the bytes behind it, in a field.
std::string Within(int field, const std::string& inner, uint64_t bytes) {
  return FieldOpening(field, inner.size() + bytes) + inner;
}

// The message but for the latents, which come last.
std::string HeadOf(const v1::ReadResponse& message, uint64_t bytes) {
  using Chunk = v1::OfferRequest::Chunk;
  if (message.has_chunk()) {
    const std::string fields = message.chunk().SerializeAsString();
    return Within(v1::ReadResponse::kChunkFieldNumber,
                  fields + FieldOpening(Chunk::kDataFieldNumber, bytes), bytes);
  }
  std::string head = FieldOpening(v1::Tensor::kDataFieldNumber, bytes);
  head = Within(v1::Trajectory::kLatentsFieldNumber, head, bytes);
  head = Within(v1::ReplayEntry::kTrajectoryFieldNumber, head, bytes);
  head = message.whole().entries(0).SerializeAsString() + head;
  head = Within(v1::WholeEntries::kEntriesFieldNumber, head, bytes);
  return Within(v1::ReadResponse::kWholeFieldNumber, head, bytes);
}

}  // namespace

std::vector<grpc::Slice> ReadAnswer::Slices() const {
  const uint64_t bytes = latents.bytes();
  if (bytes == 0) return {grpc::Slice(message.SerializeAsString())};
  std::vector<grpc::Slice> slices = {grpc::Slice(HeadOf(message, bytes))};
  if (bytes / latents.pieces.size() < kPieceBytesMin) {
    slices.emplace_back(latents.Joined());
  } else {
    for (const std::string_view piece : latents.pieces) {
      slices.push_back(rpc::SliceOf(piece, latents.memory));
    }
  }
  return slices;
}

}  // namespace oxbow::buffer
