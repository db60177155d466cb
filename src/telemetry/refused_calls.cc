// SPDX-License-Identifier: Apache-2.0
#include "telemetry/refused_calls.h"

namespace oxbow::telemetry {

RefusedCalls& RefusedCalls::This() {
  static RefusedCalls& counts = *new RefusedCalls;  // Never destroyed: threads may outlive main.
  return counts;
}

void RefusedCalls::Add(const std::string& method, const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  ++counts_[{method, reason}];
}

RefusedCalls::ByMethodAndReason RefusedCalls::counts() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

}  // namespace oxbow::telemetry
