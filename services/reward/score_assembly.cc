// SPDX-License-Identifier: Apache-2.0
#include "services/reward/score_assembly.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace oxbow::reward {

namespace {

absl::StatusOr<MediaLease> TakeRoom(uint64_t bytes, ByteBudget& room) {
  if (bytes > room.bytes_max()) {
    return absl::InvalidArgumentError(absl::StrCat("batch is larger than this server: ", bytes,
                                                   " bytes over ", room.bytes_max()));
  }
  std::optional<ByteBudget::Hold> hold = room.TryTake(bytes);
  if (hold.has_value()) return std::make_shared<const ByteBudget::Hold>(*std::move(hold));
  return absl::ResourceExhaustedError(absl::StrCat(
      "busy: media of ", room.used(), " bytes are here already, and ", room.bytes_max(),
      " bytes are allowed (--media-mib); ask again later, or start more reward servers"));
}

}  // namespace

absl::StatusOr<ScoreAssembly> ScoreAssembly::Begin(v1::ScoreRequest& request,
                                                   uint64_t medium_bytes_max, ByteBudget& room) {
  ScoreAssembly assembly;
  std::map<uint64_t, int> uses;  // By number.
  uint64_t bytes = 0;
  for (const v1::ScoreItem& item : request.items()) {
    if (item.image().pixels_size() > medium_bytes_max) {
      return absl::InvalidArgumentError(absl::StrCat("item ", item.item(),
                                                     " is too large: ", item.image().pixels_size(),
                                                     " bytes over ", medium_bytes_max));
    }
    assembly.media_.emplace_back(item.image(), medium_bytes_max);
    bytes += assembly.media_.back().memory();
    ++uses[item.item()];
  }
  OXBOW_ASSIGN_OR_RETURN(assembly.lease_, TakeRoom(bytes, room));
  for (size_t i = 0; i < assembly.media_.size(); ++i) {
    v1::ScoreItem& item = *request.mutable_items(static_cast<int>(i));
    assembly.media_[i].Append(item.image().pixels());
    item.mutable_image()->clear_pixels();
    if (assembly.media_[i].missing() == 0) continue;
    if (uses[item.item()] > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("two items have the number ", item.item(), ", and one comes in pieces"));
    }
    assembly.open_[item.item()] = i;
  }
  return assembly;
}

absl::Status ScoreAssembly::Add(const v1::ScoreRequest& pieces) {
  for (const v1::ScoreItem& piece : pieces.items()) {
    const auto open = open_.find(piece.item());
    if (open == open_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "item ", piece.item(), " misses no piece, and other items are not complete yet"));
    }
    Medium& medium = media_[open->second];
    const size_t size = piece.image().pixels().size();
    if (size == 0 || size > medium.missing()) {
      return absl::InvalidArgumentError(absl::StrCat("piece of item ", piece.item(), " has ", size,
                                                     " bytes; ", medium.missing(), " are missing"));
    }
    medium.Append(piece.image().pixels());
    if (medium.missing() == 0) open_.erase(open);
  }
  return absl::OkStatus();
}

std::vector<absl::StatusOr<std::vector<Image8>>> ScoreAssembly::TakeMedia() {
  OXBOW_CHECK(whole()) << open_.size() << " media are not complete";
  std::vector<absl::StatusOr<std::vector<Image8>>> media;
  for (Medium& medium : media_) media.push_back(medium.TakeFrames());
  return media;
}

}  // namespace oxbow::reward
