// Sends the policy out to workers: a snapshot with its probe, known to the coordinator before it is
// announced.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/ids.h"
#include "core/model/policy.h"
#include "services/learner/coordinator.h"
#include "services/learner/learner_metrics.h"
#include "services/weights/probe.h"
#include "services/weights/snapshot.h"
#include "services/weights/weight_channel_service.h"

namespace oxbow::learner {

// Owned by the thread that owns torch.
class Publisher {
 public:
  struct Options {
    Epoch epoch;
    weights::ProbeShape probe_shape;
    uint64_t probe_seed = 0;
  };

  // All references outlive it. The policy's frozen part is read once, here.
  Publisher(Options options, model::Policy& policy, Coordinator& coordinator,
            weights::WeightChannelService& channel, LearnerMetrics& metrics);

  // Publishes the policy as `version`, made by `committed` learner steps. kResourceExhausted if it
  // exceeds the channel's budget.
  absl::Status Publish(PolicyVersion version, LearnerStep committed);

 private:
  const Options options_;
  model::Policy& policy_;
  Coordinator& coordinator_;
  weights::WeightChannelService& channel_;
  LearnerMetrics& metrics_;
  const weights::TensorBytesByName frozen_;
};

}  // namespace oxbow::learner
