// SPDX-License-Identifier: Apache-2.0
// What an HTTP request of Flow-Factory's protocol does: its items go through the queue of their
// scorer, and the caller waits for all of them.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "services/reward/compute_request.h"
#include "services/reward/reward_metrics.h"
#include "services/reward/reward_service.h"

namespace oxbow::reward {

// Thread-safe.
class ComputeCalls {
 public:
  // `service` and `metrics` outlive it.
  ComputeCalls(RewardService& service, RewardMetrics& metrics, size_t items_max)
      : service_(service), metrics_(metrics), items_max_(items_max) {}

  // Blocks until every item has a score or an error. The items of a call are one group.
  HttpReply Compute(Scorer& scorer, const std::string& body);

  // From now on what waits is dropped: its calls end with 503.
  void Stop(const ScorerPanel& panel);

 private:
  ScorerQueue::Results Scored(Scorer& scorer, std::shared_ptr<const ComputeRequest> request);

  RewardService& service_;
  RewardMetrics& metrics_;
  const size_t items_max_;
  const std::shared_ptr<std::atomic<bool>> stopping_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace oxbow::reward
