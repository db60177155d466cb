// SPDX-License-Identifier: Apache-2.0
// Whether a worker's sampler stands still: a GPU that hangs blocks the sampler's thread, and the
// other threads of the process go on. A worker whose sampler stands still renews no lease that
// waits for it and wants no more, so that others make its groups. Thread-safe.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace oxbow::rollout {

class SamplerProgress {
 public:
  SamplerProgress(const Clock& clock, absl::Duration standstill_max);

  // The sampler has done something: a forward pass, new weights, a look for work.
  void Advanced();

  // True if the last Advanced is longer ago than standstill_max, and than twice the longest pause
  // from which the sampler came back: a slow device is not one that hangs.
  bool Stalled() const;

 private:
  const Clock& clock_;
  mutable absl::Mutex mutex_;
  absl::Duration patience_ ABSL_GUARDED_BY(mutex_);
  absl::Duration last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow::rollout
