// SPDX-License-Identifier: Apache-2.0
#include "services/reward/score_assembly.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "io/image.h"
#include "services/reward/score_messages.h"
#include "services/reward/scorer_panel.h"

namespace oxbow::reward {
namespace {

// libjpeg holds the coefficients of a progressive file, two bytes each, besides its pixels.
constexpr uint64_t kJpegMemory = 3;

uint64_t BytesOf(const Image8& frame) {
  return static_cast<uint64_t>(frame.width) * frame.height * frame.channels;
}

uint64_t FramesOf(const v1::Image& image) { return std::max(image.frames(), 1U); }

absl::Status CheckEncoding(const v1::Image& image) {
  if (image.encoding().empty()) return absl::OkStatus();
  if (image.encoding() != "png" && image.encoding() != "jpeg") {
    return absl::InvalidArgumentError(
        absl::StrCat("encoding is none of raw, png and jpeg: ", image.encoding().substr(0, 20)));
  }
  if (image.frames() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a ", image.encoding(), " file is one picture, not ", image.frames(), " frames"));
  }
  return absl::OkStatus();
}

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

Medium::Medium(const v1::Image& first, uint64_t bytes_max)
    : encoding_(first.encoding()),
      missing_(std::max<uint64_t>(first.pixels_size(), first.pixels().size())) {
  refusal_ = CheckHead(first, bytes_max);
  if (!refusal_.ok()) return;
  memory_ = FramesOf(first) * BytesOf(frame_);
  if (encoding_ == "jpeg") memory_ *= kJpegMemory;
  if (!encoding_.empty()) memory_ += missing_;
}

absl::Status Medium::CheckHead(const v1::Image& first, uint64_t bytes_max) {
  OXBOW_RETURN_IF_ERROR(CheckEncoding(first));
  frame_ = {.width = static_cast<int>(first.width()),
            .height = static_cast<int>(first.height()),
            .channels = static_cast<int>(first.channels()),
            .pixels = {}};
  OXBOW_RETURN_IF_ERROR(ValidateShape(frame_));
  const uint64_t count = FramesOf(first);
  if (count > kFramesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("video has more than ", kFramesMax, " frames: ", count));
  }
  const uint64_t bytes = count * BytesOf(frame_);
  if (bytes > bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("medium is too large: ", bytes, " bytes of pixels over ", bytes_max));
  }
  const uint64_t held = first.pixels().size();
  if (first.pixels_size() > 0 && first.pixels_size() < held) {
    return absl::InvalidArgumentError(absl::StrCat(
        "image has more bytes than its pixels_size: ", held, " over ", first.pixels_size()));
  }
  if (encoding_.empty() && missing_ != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("image has other bytes than its size says: ", missing_, " for ", bytes));
  }
  return absl::OkStatus();
}

void Medium::Append(std::string_view piece) {
  OXBOW_CHECK(piece.size() <= missing_) << piece.size() << " bytes for " << missing_;
  missing_ -= piece.size();
  if (!refusal_.ok()) return;
  if (!encoding_.empty()) {
    file_.append(piece);
  } else {
    AppendRaw(piece);
  }
}

void Medium::AppendRaw(std::string_view piece) {
  const size_t bytes = BytesOf(frame_);
  while (!piece.empty()) {
    if (frames_.empty() || frames_.back().pixels.size() == bytes) {
      frames_.push_back(frame_);
      frames_.back().pixels.reserve(bytes);
    }
    std::vector<uint8_t>& pixels = frames_.back().pixels;
    const std::string_view part = piece.substr(0, bytes - pixels.size());
    pixels.insert(pixels.end(), part.begin(), part.end());
    piece.remove_prefix(part.size());
  }
}

absl::StatusOr<std::vector<Image8>> Medium::TakeFrames() {
  OXBOW_CHECK(missing_ == 0) << missing_ << " bytes are missing";
  OXBOW_RETURN_IF_ERROR(refusal_);
  if (encoding_.empty()) return std::move(frames_);
  absl::StatusOr<Image8> picture = Decode();
  file_ = std::string();
  // Whatever is wrong with a file is wrong with the request.
  if (!picture.ok()) return absl::InvalidArgumentError(picture.status().message());
  return std::vector<Image8>{*std::move(picture)};
}

absl::StatusOr<Image8> Medium::Decode() const {
  const bool png = encoding_ == "png";
  OXBOW_ASSIGN_OR_RETURN(const io::ImageShape shape,
                         png ? io::ShapeOfPng(file_) : io::ShapeOfJpeg(file_));
  if (shape != io::ImageShape{frame_.width, frame_.height, frame_.channels}) {
    return absl::InvalidArgumentError(absl::StrCat(encoding_, " file is ", shape.width, " x ",
                                                   shape.height, " of ", shape.channels,
                                                   " channels, and its message says ", frame_.width,
                                                   " x ", frame_.height, " of ", frame_.channels));
  }
  const int64_t pixels = int64_t{shape.width} * shape.height;
  return png ? io::DecodePng(file_, pixels) : io::DecodeJpeg(file_, pixels);
}

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
