// SPDX-License-Identifier: Apache-2.0
// How many calls this process refused since it started, by method and reason. rpc counts, /metrics
// reads; so neither needs the other.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace oxbow::telemetry {

// Thread-safe.
class RefusedCalls {
 public:
  using ByMethodAndReason = std::map<std::pair<std::string, std::string>, uint64_t>;

  static RefusedCalls& This();

  // `method` and `reason` come from small sets: each pair is kept for ever.
  void Add(const std::string& method, const std::string& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  ByMethodAndReason counts() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  ByMethodAndReason counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow::telemetry
