// SPDX-License-Identifier: Apache-2.0
// Metrics of a reward server, as verbs. Names and help: metrics/exported_metrics.h.
#pragma once

#include <prometheus/registry.h>

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/reward/scorer_panel.h"

namespace oxbow::reward {

// Thread-safe.
class RewardMetrics {
 public:
  // Makes every series at once, so that rates start from 0. `registry` outlives this.
  RewardMetrics(prometheus::Registry& registry, const ScorerPanel& panel);

  void ItemScored(const std::string& reward, const Score& score);
  void ItemRefused(const std::string& reward, const absl::Status& why);
  void BatchArrived(size_t items);
  // A scorer's batch, whose oldest item `waited` and whose scoring `took` so long.
  void BatchScored(const RewardFacts& reward, size_t items, absl::Duration waited,
                   absl::Duration took);
  // Whether its health says SERVING.
  void Serves(const std::string& reward, bool serves);
  void CallEnded(absl::Duration duration, bool ok);

 private:
  struct OfReward {
    prometheus::Counter* scored;
    prometheus::Counter* invalid;
    prometheus::Counter* failed;
    prometheus::Counter* cached;
    std::map<std::string, prometheus::Counter*> errors;  // By kind.
    prometheus::Histogram* score;
    prometheus::Histogram* queue;
    prometheus::Histogram* fill;
    prometheus::Histogram* scoring;
    prometheus::Gauge* serving;
  };
  std::map<std::string, OfReward> rewards_;
  prometheus::Histogram* call_ok_;
  prometheus::Histogram* call_error_;
  prometheus::Histogram* batch_items_;
};

}  // namespace oxbow::reward
