// SPDX-License-Identifier: Apache-2.0
// Whether each reward of a server serves, as grpc.health.v1 names it: "oxbow.v1.Reward/NAME".
//
// None serves while the server loads. A reward whose last kFailuresMax batches gave no score at
// all, for reasons of its own, is broken until it gives one. That of the server as a whole does not
// depend on it: its other rewards may be fine.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace oxbow::reward {

// Thread-safe.
class RewardHealth {
 public:
  static constexpr int kFailuresMax = 3;

  explicit RewardHealth(const std::vector<std::string>& rewards);

  // All rewards are loaded.
  void Ready();
  // Takes note of a batch: how many of its items have a score, and how many failed through no fault
  // of their caller. Returns whether the reward serves.
  bool BatchScored(const std::string& reward, size_t scored, size_t failed);

  // "" and "oxbow.v1.Reward" are the server as a whole. Nothing for a name that it does not have.
  std::optional<bool> Serves(std::string_view service) const;

 private:
  mutable absl::Mutex mutex_;
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;
  // Batches without a score, one after the other.
  std::map<std::string, int, std::less<>> failures_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow::reward
