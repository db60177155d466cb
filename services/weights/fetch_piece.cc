// SPDX-License-Identifier: Apache-2.0
#include "services/weights/fetch_piece.h"

#include <algorithm>
#include <tuple>

namespace oxbow::weights {
namespace {

// Small chunks are copied once into a message of many: that costs less than a message of its own.
constexpr uint64_t kSmallBytes = uint64_t{128} << 10;
constexpr uint64_t kTogetherBytes = uint64_t{1} << 20;

}  // namespace

std::vector<grpc::Slice> FetchPiece::Slices() const {
  v1::FetchResponse fields;
  if (chunk == nullptr) {  // Empty without small chunks, which is a keep-alive.
    for (const auto& [hash, whole] : small) {
      v1::FetchResponse::SmallChunk& one = *fields.add_small();
      one.set_chunk_sha256(hash);
      one.set_data(*whole);
    }
    return {grpc::Slice(fields.SerializeAsString())};
  }
  fields.set_chunk_sha256(sha256);
  fields.set_offset(offset);
  return {grpc::Slice(fields.SerializeAsString() +
                      rpc::FieldOpening(v1::FetchResponse::kDataFieldNumber, bytes)),
          rpc::SliceOf({chunk->data() + offset, bytes}, chunk)};
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
