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

  // The size of every picture in pixels, and its frames; an image has one. 0: any size.
  struct Size {
    int height = 0;
    int width = 0;
    size_t frames = 0;
  };

  // So many leases have its pictures; at least one.
  explicit DrawnPictures(size_t leases) : DrawnPictures(leases, Size()) {}
  DrawnPictures(size_t leases, Size size) : size_(size), leases_(leases) {}

  // kInvalidArgument unless they have the size of this evaluation, and the channels of what is
  // here.
  absl::Status Check(const std::vector<Frames>& pictures);

  // The pictures of a lease, in order, which Check has found right. Each is added once: the lease
  // table ensures that.
  void Add(size_t lease, std::vector<Frames> pictures);

  // Ends the wait. The first reason counts.
  void End(const absl::Status& why);

  // Waits for all pictures and returns them in the order of their places; or why it has ended. To
  // be called once.
  absl::StatusOr<std::vector<Frames>> Await();

 private:
  const Size size_;
  absl::Mutex mutex_;
  int channels_ ABSL_GUARDED_BY(mutex_) = 0;                         // 0: no picture is here.
  std::vector<std::vector<Frames>> leases_ ABSL_GUARDED_BY(mutex_);  // Empty: not here.
  size_t here_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow::learner
