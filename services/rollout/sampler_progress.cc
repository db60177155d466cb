// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/sampler_progress.h"

#include <algorithm>

namespace oxbow::rollout {

SamplerProgress::SamplerProgress(const Clock& clock, absl::Duration standstill_max)
    : clock_(clock), patience_(standstill_max), last_(clock.Now()) {}

void SamplerProgress::Advanced() {
  absl::MutexLock lock(&mutex_);
  const absl::Duration now = clock_.Now();
  patience_ = std::max(patience_, 2 * (now - last_));
  last_ = now;
}

bool SamplerProgress::Stalled() const {
  absl::MutexLock lock(&mutex_);
  return clock_.Now() - last_ > patience_;
}

}  // namespace oxbow::rollout
