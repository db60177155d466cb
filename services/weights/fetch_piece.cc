// SPDX-License-Identifier: Apache-2.0
#include "services/weights/fetch_piece.h"

#include <grpcpp/support/slice.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace oxbow::weights {
namespace {

// Small chunks are copied once into a message of many: that costs less than a message of its own.
constexpr uint64_t kSmallBytes = uint64_t{128} << 10;
constexpr uint64_t kTogetherBytes = uint64_t{1} << 20;

// The tag before the data of a FetchResponse: field number 3, length-delimited.
constexpr char kDataTag = (v1::FetchResponse::kDataFieldNumber << 3) | 2;

// All of a message with one piece but its data, which comes last.
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

// The message of small chunks alone; empty if there are none, which is a keep-alive.
std::string SmallChunksOf(const FetchPiece& piece) {
  v1::FetchResponse message;
  for (const auto& [sha256, chunk] : piece.small) {
    v1::FetchResponse::SmallChunk& small = *message.add_small();
    small.set_chunk_sha256(sha256);
    small.set_data(*chunk);
  }
  return message.SerializeAsString();
}

rpc::Part ChunkSender::Send(const std::string& sha256, const Chunk& chunk, uint64_t offset,
                            const PieceRule& rule) {
  if (offset == 0 && chunk->size() <= std::min(kSmallBytes, rule.bytes_max)) {
    if (rule.before) rule.before(chunk->size());
    kept_.small.emplace_back(sha256, chunk);
    kept_.bytes += chunk->size();
    rules_.emplace_back(&rule, chunk->size());
    if (kept_.bytes >= std::min(kTogetherBytes, rule.bytes_max)) {
      rpc::Part flushed = Flush();
      co_return co_await flushed;
    }
    co_return absl::OkStatus();
  }
  rpc::Part flushed = Flush();
  if (absl::Status status = co_await flushed; !status.ok()) co_return status;
  while (offset < chunk->size()) {
    const uint64_t bytes = std::min<uint64_t>(rule.bytes_max, chunk->size() - offset);
    if (rule.before) rule.before(bytes);
    FetchPiece piece{.sha256 = sha256, .offset = offset, .chunk = chunk, .bytes = bytes};
    if (!co_await stream_.Write(std::move(piece))) co_return absl::CancelledError("gone");
    if (rule.after) rule.after(bytes);
    offset += bytes;
  }
  co_return absl::OkStatus();
}

rpc::Part ChunkSender::Flush() {
  if (kept_.small.empty()) co_return absl::OkStatus();
  FetchPiece together = std::exchange(kept_, {});
  if (together.small.size() == 1) {
    std::tie(together.sha256, together.chunk) = std::move(together.small.front());
    together.small.clear();
  }
  const auto rules = std::exchange(rules_, {});
  if (!co_await stream_.Write(std::move(together))) co_return absl::CancelledError("gone");
  for (const auto& [rule, bytes] : rules) {
    if (rule->after) rule->after(bytes);
  }
  co_return absl::OkStatus();
}

}  // namespace oxbow::weights

grpc::Status grpc::SerializationTraits<oxbow::weights::FetchPiece>::Serialize(
    const oxbow::weights::FetchPiece& piece, grpc::ByteBuffer* buffer, bool* own_buffer) {
  *own_buffer = true;
  if (piece.chunk == nullptr) {
    const grpc::Slice whole(oxbow::weights::SmallChunksOf(piece));
    *buffer = grpc::ByteBuffer(&whole, 1);
    return grpc::Status::OK;
  }
  const grpc::Slice slices[] = {grpc::Slice(oxbow::weights::HeadOf(piece)),
                                oxbow::weights::DataOf(piece)};
  *buffer = grpc::ByteBuffer(slices, 2);
  return grpc::Status::OK;
}
