// SPDX-License-Identifier: Apache-2.0
#include "services/learner/ranks/gathered_pictures.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "rpc/convert.h"

namespace oxbow::learner {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
constexpr uint64_t kSideMax =
    1 << 16;  // The largest side, and the most frames: no product overflows.

absl::StatusOr<size_t> FrameBytes(const v1::PicturePiece& picture) {
  for (const uint64_t side : {picture.frames(), picture.height(), picture.width()}) {
    if (side == 0 || side > kSideMax) return absl::InvalidArgumentError("a picture of no size");
  }
  if (picture.channels() != 1 && picture.channels() != 3) {
    return absl::InvalidArgumentError(absl::StrCat("channels: ", picture.channels()));
  }
  return size_t{picture.height()} * picture.width() * picture.channels();
}

GatheredPictures::Frames FramesOf(const v1::PicturePiece& picture, size_t frame_bytes,
                                  const std::string& bytes) {
  GatheredPictures::Frames frames;
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

uint64_t GatheredPictures::Begin(const std::vector<parallel::Share>& shares) {
  absl::MutexLock lock(&mutex_);
  running_ = true;
  ended_ = absl::OkStatus();
  ranks_.clear();
  for (const parallel::Share& share : shares) ranks_.push_back({.share = share});
  if (!ranks_.empty()) ranks_.front().share = {};
  return ++evaluation_;
}

void GatheredPictures::Add(uint32_t rank, const v1::PicturePiece& piece) {
  absl::MutexLock lock(&mutex_);
  if (!running_ || !ended_.ok() || piece.evaluation() != evaluation_) return;
  if (!piece.error().empty()) {
    ended_ = absl::UnavailableError(absl::StrCat("learner rank ", rank, ": ", piece.error()));
    return;
  }
  const absl::Status added =
      rank < ranks_.size() ? AddTo(ranks_[rank], piece) : absl::InvalidArgumentError("no share");
  if (added.ok()) return;
  ended_ = absl::InternalError(absl::StrCat("learner rank ", rank, " sent a picture that was not ",
                                            "asked for: ", std::string(added.message())));
}

absl::Status GatheredPictures::AddTo(Coming& coming, const v1::PicturePiece& piece) {
  const size_t next = coming.share.begin + coming.whole.size();
  if (coming.complete() || piece.place() != next) {
    return absl::InvalidArgumentError(absl::StrCat("place ", piece.place()));
  }
  OXBOW_ASSIGN_OR_RETURN(const size_t frame_bytes, FrameBytes(piece));
  const size_t whole = frame_bytes * piece.frames();
  coming.bytes += piece.data();
  if (coming.bytes.size() > whole) return absl::InvalidArgumentError("more bytes than pixels");
  if (coming.bytes.size() < whole) return absl::OkStatus();
  coming.whole.push_back(FramesOf(piece, frame_bytes, coming.bytes));
  coming.bytes.clear();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<GatheredPictures::Frames>> GatheredPictures::Await(
    absl::Duration limit) {
  absl::MutexLock lock(&mutex_);
  const auto over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !ended_.ok() || std::all_of(ranks_.begin(), ranks_.end(),
                                       [](const Coming& rank) { return rank.complete(); });
  };
  const bool in_time = mutex_.AwaitWithTimeout(absl::Condition(&over), limit);
  if (!ended_.ok()) return ended_;
  if (!in_time) {
    return absl::DeadlineExceededError(
        absl::StrCat("pictures of learner ranks did not come: ", Missing()));
  }
  running_ = false;
  std::vector<Frames> pictures;
  for (Coming& rank : ranks_) {
    std::move(rank.whole.begin(), rank.whole.end(), std::back_inserter(pictures));
  }
  ranks_.clear();
  return pictures;
}

std::string GatheredPictures::Missing() const {
  std::vector<std::string> missing;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].complete()) missing.push_back(absl::StrCat(rank));
  }
  return absl::StrJoin(missing, ", ");
}

std::optional<uint64_t> GatheredPictures::End(const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  if (!running_) return std::nullopt;
  if (ended_.ok()) ended_ = why;
  return evaluation_;
}

bool GatheredPictures::running() const {
  absl::MutexLock lock(&mutex_);
  return running_ && ended_.ok();
}

std::vector<v1::PicturePiece> InPieces(uint64_t evaluation, size_t place,
                                       const GatheredPictures::Frames& frames) {
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
  rpc::ForEachChunk(bytes, kPieceBytes, [&](uint64_t, std::string_view piece) {
    pieces.push_back(picture);
    pieces.back().set_data(std::string(piece));
    return true;
  });
  return pieces;
}

}  // namespace oxbow::learner
