// SPDX-License-Identifier: Apache-2.0
// One medium on its way in: raw pixels, or a PNG or JPEG file; whole, or in pieces.
//
// Its need of memory is known from its first message, before memory is taken. A file whose own
// header says another shape is refused before it is decoded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/image8.h"
#include "oxbow/v1/reward.pb.h"

namespace oxbow::reward {

class Medium {
 public:
  // Reads the head alone. Sizes that are not allowed or do not hold together are what TakeFrames
  // returns; the bytes of such a medium are dropped. `bytes_max`: of its pixels.
  Medium(const v1::Image& first, uint64_t bytes_max);

  // Bytes to be appended: all at first, those of the first message among them.
  uint64_t missing() const { return missing_; }
  // The most bytes that it takes from its first to its last use.
  uint64_t memory() const { return memory_; }

  // Takes the next bytes. Requires piece.size() <= missing().
  void Append(std::string_view piece);

  // The picture, or the frames of the video. kInvalidArgument if it is not what its head says.
  // Requires that nothing is missing. Once.
  absl::StatusOr<std::vector<Image8>> TakeFrames();

 private:
  absl::Status CheckHead(const v1::Image& first, uint64_t bytes_max);  // Fills in frame_.
  void AppendRaw(std::string_view piece);
  absl::StatusOr<Image8> Decode() const;

  absl::Status refusal_;
  Image8 frame_;  // The shape of each frame, without pixels.
  std::string encoding_;
  uint64_t missing_ = 0;
  uint64_t memory_ = 0;
  std::vector<Image8> frames_;  // Raw ones; the last may be incomplete.
  std::string file_;            // An encoded one.
};

}  // namespace oxbow::reward
