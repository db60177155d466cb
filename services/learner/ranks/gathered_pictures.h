// SPDX-License-Identifier: Apache-2.0
// The held-out pictures that ranks above 0 draw for an evaluation, as they come to rank 0.
//
// One evaluation at a time has this number, and one that has ended takes no more pictures: a rank
// that is late changes nothing. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/parallel/share.h"
#include "oxbow/v1/learner_ranks.pb.h"
#include "rpc/picture_pieces.h"

namespace oxbow::learner {

class GatheredPictures {
 public:
  using Frames = rpc::PictureFrames;

  // Begins the next evaluation and returns its number. `shares`: the places that each rank draws,
  // by rank.
  uint64_t Begin(const std::vector<parallel::Share>& shares);

  // Adds a piece of a picture. A piece that is not the next one of its rank's share ends the
  // evaluation with an error, and so does a rank that cannot draw.
  void Add(uint32_t rank, const v1::PicturePiece& piece);

  // Waits for the pictures of ranks 1 and above, and returns them in the order of their places.
  // kDeadlineExceeded names the ranks that have not drawn theirs; else why it has ended.
  absl::StatusOr<std::vector<Frames>> Await(absl::Duration limit);

  // Ends the evaluation that has begun and whose pictures Await has not returned yet. Returns its
  // number, also if it has ended before; nothing if there is none.
  std::optional<uint64_t> End(const absl::Status& why);

  // Whether an evaluation is under way that nobody has ended.
  bool running() const;

 private:
  std::string Missing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  uint64_t evaluation_ ABSL_GUARDED_BY(mutex_) = 0;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  std::vector<rpc::ComingPictures> ranks_
      ABSL_GUARDED_BY(mutex_);  // By rank; rank 0 draws its own.
};

}  // namespace oxbow::learner
