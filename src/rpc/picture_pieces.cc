// SPDX-License-Identifier: Apache-2.0
#include "rpc/picture_pieces.h"

#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "rpc/convert.h"

namespace oxbow::rpc {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
constexpr uint64_t kSideMax = 1 << 16;  // The largest side, and the most frames.

absl::StatusOr<size_t> FrameBytes(const v1::PicturePiece& picture) {
  for (const uint64_t side : {picture.frames(), picture.height(), picture.width()}) {
    if (side == 0 || side > kSideMax) return absl::InvalidArgumentError("a picture of no size");
  }
  if (picture.channels() != 1 && picture.channels() != 3) {
    return absl::InvalidArgumentError(absl::StrCat("channels: ", picture.channels()));
  }
  const size_t bytes = size_t{picture.height()} * picture.width() * picture.channels();
  if (bytes > ComingPictures::kPictureBytesMax / picture.frames()) {
    return absl::InvalidArgumentError("a picture that is too large");
  }
  return bytes;
}

bool SameSize(const v1::PicturePiece& a, const v1::PicturePiece& b) {
  return a.frames() == b.frames() && a.height() == b.height() && a.width() == b.width() &&
         a.channels() == b.channels();
}

PictureFrames FramesOf(const v1::PicturePiece& picture, size_t frame_bytes,
                       const std::string& bytes) {
  PictureFrames frames;
  for (size_t at = 0; at < bytes.size(); at += frame_bytes) {
    const auto begin = bytes.begin() + static_cast<ptrdiff_t>(at);
    frames.push_back({.width = static_cast<int>(picture.width()),
                      .height = static_cast<int>(picture.height()),
                      .channels = static_cast<int>(picture.channels()),
                      .pixels = {begin, begin + static_cast<ptrdiff_t>(frame_bytes)}});
  }
  return frames;
}

}  // namespace

std::vector<v1::PicturePiece> InPieces(uint64_t evaluation, size_t place,
                                       const PictureFrames& frames) {
  v1::PicturePiece picture;
  picture.set_evaluation(evaluation);
  picture.set_place(static_cast<uint32_t>(place));
  picture.set_frames(static_cast<uint32_t>(frames.size()));
  picture.set_height(static_cast<uint32_t>(frames.front().height));
  picture.set_width(static_cast<uint32_t>(frames.front().width));
  picture.set_channels(static_cast<uint32_t>(frames.front().channels));
  std::string bytes;
  for (const Image8& frame : frames) bytes.append(frame.pixels.begin(), frame.pixels.end());
  std::vector<v1::PicturePiece> pieces;
  ForEachChunk(bytes, kPieceBytes, [&](uint64_t, std::string_view piece) {
    pieces.push_back(picture);
    pieces.back().set_data(std::string(piece));
    return true;
  });
  return pieces;
}

absl::Status ComingPictures::Add(const v1::PicturePiece& piece) {
  if (complete() || piece.place() != first_ + whole_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("place ", piece.place()));
  }
  OXBOW_ASSIGN_OR_RETURN(const size_t frame_bytes, FrameBytes(piece));
  const size_t whole = frame_bytes * piece.frames();
  if (bytes_.empty()) {
    begun_ = piece;
    begun_.clear_data();
  }
  if (!SameSize(begun_, piece)) {
    return absl::InvalidArgumentError("pieces of one picture have several sizes");
  }
  bytes_ += piece.data();
  if (bytes_.size() > whole) return absl::InvalidArgumentError("more bytes than pixels");
  if (bytes_.size() < whole) return absl::OkStatus();
  whole_.push_back(FramesOf(piece, frame_bytes, bytes_));
  bytes_.clear();
  return absl::OkStatus();
}

}  // namespace oxbow::rpc
