// SPDX-License-Identifier: Apache-2.0
#include "services/weights/download.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/sha256.h"
#include "base/status_macros.h"

namespace oxbow::weights {

absl::StatusOr<Download> Download::Start(const v1::SnapshotManifest& manifest, ChunkStore& store,
                                         ChunkCheck check) {
  Download download(&store, nullptr, check);
  const std::vector<ChunkSize> chunks = ChunksOf(manifest);
  for (const ChunkSize& chunk : chunks) {
    ChunkStore::Whereabouts here = store.Look(chunk.sha256);
    if (here.chunk != nullptr) {
      download.verified_.emplace(chunk.sha256, std::move(here.chunk));
    } else if (here.placed != nullptr) {
      download.placed_.emplace(chunk.sha256, std::move(here.placed));
    } else {
      download.checksums_[chunk.sha256] = chunk.xxh3;
      download.lacking_.push_back(chunk);
    }
  }
  OXBOW_RETURN_IF_ERROR(store.Expect(chunks));
  return download;
}

Download Download::Of(const std::vector<ChunkSize>& contents, ContentStore& store) {
  Download download(nullptr, &store, ChunkCheck::kSha256);
  for (const ChunkSize& content : contents) {
    if (Chunk here = store.Find(content.sha256); here != nullptr) {
      download.verified_.emplace(content.sha256, std::move(here));
    } else if (download.checksums_.emplace(content.sha256, content.xxh3).second) {
      download.lacking_.push_back(content);
    }
  }
  return download;
}

bool Download::Fits(const std::string& bytes, const std::string& sha256,
                    const std::string& xxh3) const {
  return check_ == ChunkCheck::kSha256 ? Sha256(bytes) == sha256 : Checksum128(bytes) == xxh3;
}

v1::FetchRequest Download::Request() const {
  v1::FetchRequest request;
  for (const ChunkSize& chunk : lacking_) request.add_chunk_sha256(chunk.sha256);
  request.set_first_offset(partial_.size());
  return request;
}

absl::Status Download::Take(v1::FetchResponse& message) {
  if (!message.data().empty() || message.small().empty()) {
    OXBOW_RETURN_IF_ERROR(
        TakePiece(message.chunk_sha256(), message.offset(), *message.mutable_data()));
  }
  for (v1::FetchResponse::SmallChunk& small : *message.mutable_small()) {
    OXBOW_RETURN_IF_ERROR(TakePiece(small.chunk_sha256(), 0, *small.mutable_data()));
  }
  return absl::OkStatus();
}

absl::Status Download::TakePiece(const std::string& sha256, uint64_t offset, std::string& data) {
  if (lacking_.empty()) return absl::InvalidArgumentError("more chunks than were asked for");
  const ChunkSize chunk = lacking_.front();
  if (sha256 != chunk.sha256 || offset != partial_.size() || data.empty() ||
      data.size() > chunk.bytes - partial_.size()) {
    partial_.clear();
    return absl::InvalidArgumentError(
        absl::StrCat("piece does not continue the chunk: offset ", offset));
  }
  bytes_ += data.size();
  if (partial_.empty() && store_ != nullptr) partial_ = store_->pool().Take(chunk.bytes);
  if (data.size() == chunk.bytes) {
    // Most often a piece is a chunk. Its bytes stay where they are, and the next piece is read into
    // the memory that was taken.
    partial_.swap(data);
  } else {
    partial_.reserve(chunk.bytes);
    partial_ += data;
  }
  if (partial_.size() < chunk.bytes) return absl::OkStatus();
  std::string whole = std::exchange(partial_, {});
  lacking_.pop_front();
  if (!Fits(whole, chunk.sha256, chunk.xxh3)) {
    lacking_.push_back(chunk);
    return absl::DataLossError(
        absl::StrCat("chunk does not match its checksum: ", HexOf(chunk.sha256)));
  }
  Keep(chunk.sha256, std::move(whole));
  return absl::OkStatus();
}

void Download::Keep(const std::string& sha256, std::string verified) {
  if (contents_ != nullptr) {
    Chunk content = std::make_shared<const std::string>(std::move(verified));
    verified_.emplace(sha256, contents_->Put(sha256, std::move(content)));
    return;
  }
  Chunk chunk = store_->pool().Seal(std::move(verified));
  verified_.emplace(sha256, chunk);
  store_->Put(sha256, std::move(chunk));
}

absl::Status Download::Offer(const std::string& sha256, std::string bytes) {
  bytes_ += bytes.size();
  const auto checksum = checksums_.find(sha256);
  OXBOW_CHECK(checksum != checksums_.end()) << "a chunk that does not lack is offered";
  if (!Fits(bytes, sha256, checksum->second)) {
    return absl::DataLossError("chunk does not match its checksum");
  }
  Keep(sha256, std::move(bytes));
  return absl::OkStatus();
}

absl::Status Download::Offer(const std::string& sha256, const Placed& placed) {
  OXBOW_ASSIGN_OR_RETURN(const Chunk there, placed->Read());
  bytes_ += there->size();
  const auto checksum = checksums_.find(sha256);
  OXBOW_CHECK(checksum != checksums_.end()) << "a chunk that does not lack is offered";
  // Later readers compare with the place's checksum alone.
  if (placed->xxh3 != checksum->second || !Fits(*there, sha256, checksum->second)) {
    return absl::DataLossError("chunk does not match its checksum");
  }
  placed_.emplace(sha256, placed);
  store_->Place(sha256, placed);
  return absl::OkStatus();
}

std::set<std::string> Download::Lacking() const {
  std::set<std::string> hashes;
  for (const ChunkSize& chunk : lacking_) hashes.insert(chunk.sha256);
  return hashes;
}

void Download::Settle() {
  partial_.clear();
  std::erase_if(lacking_, [this](const ChunkSize& chunk) {
    return verified_.contains(chunk.sha256) || placed_.contains(chunk.sha256);
  });
}

}  // namespace oxbow::weights
