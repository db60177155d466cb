// SPDX-License-Identifier: Apache-2.0
// One batch of items on its way in, whose media may come in pieces (ScoreItem in
// proto/oxbow/v1/reward.proto).
//
// Sizes are checked, and room for the whole batch is taken, before any further piece is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/byte_budget.h"
#include "base/image8.h"
#include "oxbow/v1/reward.pb.h"

namespace oxbow::reward {

// One medium on its way in: raw pixels, or a PNG or JPEG file; whole, or in pieces.
//
// Its need of memory is known from its first message, before memory is taken. A file whose own
// header says another shape is refused before it is decoded.
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

// Memory of media, held until the last copy is gone.
using MediaLease = std::shared_ptr<const ByteBudget::Hold>;

class ScoreAssembly {
 public:
  // Begins the batch of a request, which loses its pixels. Errors are the call's: kInvalidArgument
  // for a medium over `medium_bytes_max` and for two items of one number where one comes in pieces;
  // for media that never fit in `room`, the memory of all calls, which outlives this; and
  // kResourceExhausted if they do not fit now. What is wrong with one medium is its own affair.
  static absl::StatusOr<ScoreAssembly> Begin(v1::ScoreRequest& request, uint64_t medium_bytes_max,
                                             ByteBudget& room);

  // True when no piece is missing.
  bool whole() const { return open_.empty(); }

  // Takes the next pieces. kInvalidArgument if they are of no medium that waits for them.
  absl::Status Add(const v1::ScoreRequest& pieces);

  const MediaLease& lease() const { return lease_; }

  // By item of the request. Requires whole(). Once.
  std::vector<absl::StatusOr<std::vector<Image8>>> TakeMedia();

 private:
  ScoreAssembly() = default;

  std::vector<Medium> media_;        // By item of the request.
  std::map<uint64_t, size_t> open_;  // Media that pieces are missing of, by the item's number.
  MediaLease lease_;
};

}  // namespace oxbow::reward
