// SPDX-License-Identifier: Apache-2.0
#include "services/reward/circuit_breaker.h"

#include <algorithm>

namespace oxbow::reward {

bool CircuitBreaker::Admits(absl::Duration now, absl::Duration trial) {
  if (failures_ == 0) return true;
  if (now < until_) return false;
  until_ = now + trial;
  return true;
}

void CircuitBreaker::Failed(absl::Duration now, double jitter, absl::Duration pause) {
  const absl::Duration full =
      std::min(options_.rest_first * (int64_t{1} << std::min(failures_, 20)), options_.rest_max);
  ++failures_;
  until_ = now + std::max(full * (0.5 + 0.5 * jitter), pause * (1 + 0.25 * jitter));
}

}  // namespace oxbow::reward
