// SPDX-License-Identifier: Apache-2.0
// A worker's part in an evaluation: leases of held-out pictures.
//
//   I/O thread    Prepare: weights and conditioning by hash
//   torch thread  Draw, as the learner draws its own pictures
//   I/O thread    Deliver: pictures to the learner
//
// A picture depends on the weights that its lease names and on its noise key alone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "oxbow/v1/coordinator.grpc.pb.h"
#include "rpc/picture_pieces.h"
#include "services/rollout/conditioning_source.h"
#include "services/rollout/held_leases.h"
#include "services/rollout/run_spec.h"
#include "services/rollout/sampler_model.h"

namespace oxbow::rollout {

// All that drawing a lease's pictures needs.
struct PicturesToDraw {
  EvaluatedWeights::Weights weights;
  std::vector<weights::Chunk> conditioning;  // By picture: a serialised v1::Conditioning.
};

// The conditioning of a prompt as leases name it: a serialised v1::Conditioning.
absl::StatusOr<model::Conditioning> ConditioningFrom(const RunSpec& spec, const std::string& sent);

// Takes the leases of held-out pictures out of a batch.
std::vector<ReadyLease> TakePictures(std::vector<ReadyLease>& batch);

class PictureWork {
 public:
  using Pictures = std::vector<rpc::PictureFrames>;
  // Watches every forward pass of a network.
  using Watch = std::function<std::unique_ptr<model::VelocityModel>(const model::VelocityModel&)>;

  // All references outlive it.
  PictureWork(const RunSpec& spec, std::string worker_id, v1::Coordinator::Stub& coordinator,
              ConditioningSource& source,
              std::function<weights::Chunk(const std::string& sha256)> held, const Clock& clock);

  // Fetches what the lease needs. Waits.
  absl::StatusOr<ReadyLease> Prepare(v1::Lease lease);

  using Drawn = absl::StatusOr<Pictures>;
  using TakeDrawn = std::function<void(const v1::Lease&, Drawn)>;

  // Draws the pictures of leases and gives each lease's to `take`, or why there are none.
  void Draw(const std::vector<ReadyLease>& leases, SamplerModel& model, const Watch& watch,
            const TakeDrawn& take) const;

  // Sends them until the learner has answered or `pause` says that nobody waits for them. False if
  // nobody wanted them.
  absl::StatusOr<bool> Deliver(const v1::Lease& lease, const Pictures& pictures,
                               const std::function<bool(absl::Duration)>& pause);

  // The weights in use are others.
  void WeightsApplied() { weights_.Applied(); }
  // Ends all calls.
  void Cancel() { guard_.CancelAll(); }

 private:
  Drawn DrawOne(const ReadyLease& ready, SamplerModel& model, const Watch& watch) const;
  absl::StatusOr<bool> DeliverOnce(const v1::Lease& lease, const Pictures& pictures);

  const RunSpec& spec_;
  const std::string worker_id_;
  v1::Coordinator::Stub& coordinator_;
  ConditioningSource& source_;
  EvaluatedWeights weights_;
  rpc::SilenceGuard guard_;
};

}  // namespace oxbow::rollout
