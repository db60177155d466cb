// SPDX-License-Identifier: Apache-2.0
// The held-out pictures of one evaluation as workers send them, lease by lease. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "rpc/picture_pieces.h"

namespace oxbow::learner {

class DrawnPictures {
 public:
  using Frames = rpc::PictureFrames;

  // So many leases have its pictures; at least one.
  explicit DrawnPictures(size_t leases) : leases_(leases) {}

  // The pictures of a lease, in order. Each is added once: the lease table ensures that.
  void Add(size_t lease, std::vector<Frames> pictures);

  // Ends the wait. The first reason counts.
  void End(const absl::Status& why);

  // Waits for all pictures and returns them in the order of their places; or why it has ended. To
  // be called once.
  absl::StatusOr<std::vector<Frames>> Await();

 private:
  absl::Mutex mutex_;
  std::vector<std::vector<Frames>> leases_ ABSL_GUARDED_BY(mutex_);  // Empty: not here.
  size_t here_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow::learner
