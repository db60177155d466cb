// SPDX-License-Identifier: Apache-2.0
#include "services/weights/fetch_piece.h"

#include <grpcpp/support/slice.h>

#include <algorithm>
#include <utility>

namespace oxbow::weights {
namespace {

// The tag before the data of a FetchResponse: field number 3, length-delimited.
constexpr char kDataTag = (v1::FetchResponse::kDataFieldNumber << 3) | 2;

// All of the message but its data, which is the last field.
std::string HeadOf(const FetchPiece& piece) {
  v1::FetchResponse fields;
  fields.set_chunk_sha256(piece.sha256);
  fields.set_offset(piece.offset);
  std::string head = fields.SerializeAsString();
  head += kDataTag;
  uint64_t length = piece.bytes;
  for (; length >= 0x80; length >>= 7) head += static_cast<char>(length | 0x80);
  head += static_cast<char>(length);
  return head;
}

// gRPC drops the reference once the bytes are sent.
grpc::Slice DataOf(const FetchPiece& piece) {
  char* data = const_cast<char*>(piece.chunk->data()) + piece.offset;  // It is only read.
  return grpc::Slice(
      data, piece.bytes, [](void* chunk) { delete static_cast<Chunk*>(chunk); },
      new Chunk(piece.chunk));
}

}  // namespace

rpc::Part SendChunk(FetchStream& stream, const std::string& sha256, const Chunk& chunk,
                    uint64_t offset, const PieceRule& rule) {
  while (offset < chunk->size()) {
    const uint64_t bytes = std::min<uint64_t>(rule.bytes_max, chunk->size() - offset);
    if (rule.before) rule.before(bytes);
    FetchPiece piece{sha256, offset, chunk, bytes};
    if (!co_await stream.Write(std::move(piece))) co_return absl::CancelledError("gone");
    if (rule.after) rule.after(bytes);
    offset += bytes;
  }
  co_return absl::OkStatus();
}

}  // namespace oxbow::weights

grpc::Status grpc::SerializationTraits<oxbow::weights::FetchPiece>::Serialize(
    const oxbow::weights::FetchPiece& piece, grpc::ByteBuffer* buffer, bool* own_buffer) {
  *own_buffer = true;
  if (piece.chunk == nullptr) {
    const grpc::Slice empty;
    *buffer = grpc::ByteBuffer(&empty, 1);
    return grpc::Status::OK;
  }
  const grpc::Slice slices[] = {grpc::Slice(oxbow::weights::HeadOf(piece)),
                                oxbow::weights::DataOf(piece)};
  *buffer = grpc::ByteBuffer(slices, 2);
  return grpc::Status::OK;
}
