// SPDX-License-Identifier: Apache-2.0
// A worker's torch thread: applies new weights, and samples batches of leases.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "base/bounded_queue.h"
#include "base/clock.h"
#include "services/rollout/group_delivery.h"
#include "services/rollout/learner_link.h"
#include "services/rollout/picture_work.h"
#include "services/rollout/sampler_model.h"
#include "services/weights/weight_follower.h"
#include "services/weights/weights_metrics.h"

namespace oxbow::rollout {

using TaskQueue = BoundedQueue<std::function<void()>>;

class LeaseSampler {
 public:
  // All outlive it.
  struct Parts {
    const RunSpec& spec;
    LearnerLink& link;
    SamplerModel& model;
    weights::WeightFollower& follower;
    PictureWork& pictures;
    GroupDelivery& delivery;
    TaskQueue& tasks;  // Deliveries, on other threads.
    RolloutMetrics& metrics;
    weights::FollowMetrics& follow_metrics;
    const Clock& clock;
  };
  explicit LeaseSampler(const Parts& parts) : parts_(parts) {}

  // Samples until the link stops. If the device fails or has too little memory, the link gives up.
  void Run();

 private:
  absl::Status ApplyNewest();
  const model::VelocityModel& NetworkOfNextStep();
  void SampleBatch(std::vector<ReadyLease> batch);
  std::vector<SampledGroup> Sample(std::vector<GroupTask>& tasks);
  void DrawPictures(const std::vector<ReadyLease>& batch);
  void DeliverPictures(const v1::Lease& lease, const PictureWork::Pictures& pictures);

  const Parts parts_;
};

}  // namespace oxbow::rollout
