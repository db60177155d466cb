// SPDX-License-Identifier: Apache-2.0
// Metrics of a rollout worker, as verbs. Names and help: metrics/exported_metrics.h.
#pragma once

#include <prometheus/registry.h>

#include <cstdint>
#include <memory>
#include <string>

namespace oxbow::rollout {

// Thread-safe.
class RolloutMetrics {
 public:
  explicit RolloutMetrics(prometheus::Registry& registry);
  ~RolloutMetrics();

  void BatchSampled(uint64_t samples, double seconds);
  void WaitedForLeases(double seconds);
  void GroupScored(double seconds);
  void ObservedFailed(const std::string& reward, uint32_t samples);
  void GroupDelivered(const std::string& outcome,
                      double seconds);  // accepted|duplicate|fenced|invalid|failed
  void ConditioningFrom(const std::string& source, uint64_t bytes);  // held|learner|peer
  void WeightsApplied(uint64_t policy_version, double seconds);
  void GroupsInFlight(uint64_t groups);
  void Reconnected();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace oxbow::rollout
