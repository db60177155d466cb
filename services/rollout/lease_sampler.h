// SPDX-License-Identifier: Apache-2.0
// A worker's torch thread: applies new weights, and samples batches of leases. Leases of held-out
// pictures are drawn with the weights that they name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bounded_queue.h"
#include "base/clock.h"
#include "oxbow/v1/coordinator.grpc.pb.h"
#include "rpc/picture_pieces.h"
#include "services/rollout/conditioning_source.h"
#include "services/rollout/group_delivery.h"
#include "services/rollout/held_leases.h"
#include "services/rollout/learner_link.h"
#include "services/rollout/run_spec.h"
#include "services/rollout/sampler_model.h"
#include "services/weights/weight_follower.h"
#include "services/weights/weights_metrics.h"

namespace oxbow::rollout {

// All that drawing a lease's pictures needs.
struct PicturesToDraw {
  EvaluatedWeights::Weights weights;
  std::vector<weights::Chunk> conditioning;  // By picture: a serialised v1::Conditioning.
};

// A worker's part in an evaluation: leases of held-out pictures.
//
//   I/O thread    Prepare: weights and conditioning by hash
//   torch thread  Draw, as the learner draws its own pictures
//   I/O thread    Deliver: pictures to the learner
//
// A picture depends on the weights that its lease names and on its noise key alone.
class PictureWork {
 public:
  using Pictures = std::vector<rpc::PictureFrames>;

  // All references outlive it.
  PictureWork(const RunSpec& spec, v1::Coordinator::Stub& coordinator, ConditioningSource& source,
              std::function<weights::Chunk(const std::string& sha256)> held, const Clock& clock);

  // Fetches what the lease needs. Waits.
  absl::StatusOr<ReadyLease> Prepare(v1::Lease lease);

  // Draws the pictures of a lease. What torch throws is a status. Each forward pass is progress.
  absl::StatusOr<Pictures> Draw(const ReadyLease& ready, SamplerModel& model,
                                SamplerProgress& progress) const;

  // Sends them until the learner answers or nobody waits for them, and tells the link how that
  // ended.
  void Deliver(const v1::Lease& lease, const Pictures& pictures, LearnerLink& link);

  // The weights in use are others.
  void WeightsApplied() { weights_.Applied(); }
  // Ends all calls.
  void Cancel() { guard_.CancelAll(); }

 private:
  absl::StatusOr<Pictures> DrawOne(const ReadyLease& ready, SamplerModel& model,
                                   SamplerProgress& progress) const;
  absl::Status DeliverOnce(const v1::Lease& lease, const Pictures& pictures);

  const RunSpec& spec_;
  v1::Coordinator::Stub& coordinator_;
  ConditioningSource& source_;
  EvaluatedWeights weights_;
  rpc::SilenceGuard guard_;
};

using TaskQueue = BoundedQueue<std::function<void()>>;

// Owned by the torch thread.
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

  const Parts parts_;
};

}  // namespace oxbow::rollout
