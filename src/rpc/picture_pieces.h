// SPDX-License-Identifier: Apache-2.0
// Pictures in messages: cut into pieces, and put together again. A picture may be a video: it is a
// list of frames of one size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/image8.h"
#include "oxbow/v1/common.pb.h"

namespace oxbow::rpc {

using PictureFrames = std::vector<Image8>;

// A picture in messages, in order; each holds at most 1 MiB of it. Requires frames.
std::vector<v1::PicturePiece> InPieces(uint64_t evaluation, size_t place,
                                       const PictureFrames& frames);

// The pictures of consecutive places, as their pieces come. Not thread-safe.
class ComingPictures {
 public:
  static constexpr uint64_t kPictureBytesMax = uint64_t{4} << 30;

  ComingPictures() = default;
  ComingPictures(size_t first, size_t count) : first_(first), count_(count) {}

  // Takes the next piece; all pieces of a picture name one size. kInvalidArgument for any other:
  // nothing more is to be taken then.
  absl::Status Add(const v1::PicturePiece& piece);

  bool complete() const { return whole_.size() == count_; }
  // The pictures, in the order of their places. Requires complete().
  std::vector<PictureFrames> Take() && { return std::move(whole_); }

 private:
  size_t first_ = 0;
  size_t count_ = 0;
  std::vector<PictureFrames> whole_;
  std::string bytes_;       // The part of the next picture that is here.
  v1::PicturePiece begun_;  // Its first piece, without data.
};

}  // namespace oxbow::rpc
