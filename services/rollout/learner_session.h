// SPDX-License-Identifier: Apache-2.0
// A worker's session with one epoch of the learner: from the registration until the epoch ends or
// the worker leaves. Its threads:
//
//   stream (caller's thread)    receives leases and answers to renewals
//   I/O threads (a few)         read replayed heads; score, send and report finished groups
//   sampler (one thread)        the only one that uses torch: applies weights, denoises batches
//   renewer                     renews leases at a third of their time, unless they wait for a
//                               sampler that stands still; sends heartbeats
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/trace.h"
#include "services/buffer/replay_client.h"
#include "services/reward/reward_client.h"
#include "services/rollout/conditioning_source.h"
#include "services/rollout/experience_sender.h"
#include "services/rollout/group_sampler.h"
#include "services/rollout/held_leases.h"
#include "services/rollout/picture_work.h"
#include "services/rollout/rollout_metrics.h"
#include "services/rollout/run_spec.h"
#include "services/rollout/sampler_model.h"
#include "services/rollout/sampler_progress.h"
#include "services/rollout/work_stream.h"
#include "services/weights/weight_follower.h"
#include "services/weights/weight_relay.h"
#include "services/weights/weights_metrics.h"

namespace oxbow::rollout {

class LocalWeights;

class LearnerSession {
 public:
  // All references outlive it. `rewards` serves the spec's reward names; the session owns it,
  // because the caller of Leave may keep the session alive longer than the caller of Serve.
  // `relay`, if not null, forwards this worker's weights to others; `join_broadcast_group`, if not
  // null, takes part in broadcasts.
  LearnerSession(RunSpec spec, std::string worker_id, v1::Coordinator::Stub& coordinator,
                 std::unique_ptr<reward::RewardClient> rewards, RolloutMetrics& metrics,
                 weights::FollowMetrics& follow_metrics, const Clock& clock,
                 weights::WeightRelay* relay = nullptr,
                 weights::JoinBroadcastGroup join_broadcast_group = nullptr,
                 const LocalWeights* local_weights = nullptr);
  ~LearnerSession();

  // Serves one connection and returns the reason of its end. May be called again during the same
  // epoch.
  absl::Status Serve();

  // Takes no more leases, waits up to `timeout` until the held ones are delivered, says goodbye and
  // ends Serve. From any thread.
  void Leave(absl::Duration timeout);

  // The learner said that the run is complete.
  bool run_complete() const { return run_complete_.HasBeenNotified(); }
  // Why this worker cannot serve the epoch: its reward servers are not what it needs, or its device
  // has too little memory.
  absl::Status failure() const;

 private:
  void OnMessage(const v1::WorkResponse& message);
  void DropExpired(const v1::WorkResponse::Renewed& renewed);
  Trace TraceOf(const v1::Lease& lease) const;
  void TakeLease(const v1::Lease& lease);
  void PrepareLease(v1::Lease lease);
  // `no_head`: set if the replayed head could not be read.
  absl::StatusOr<ReadyLease> Prepared(v1::Lease lease, bool& no_head);
  absl::StatusOr<rl::Trajectory> ReadHead(const v1::Lease& lease);
  void SampleLoop();
  absl::Status ApplyNewest();
  const model::VelocityModel& NetworkOfNextStep();
  void SampleBatch(std::vector<ReadyLease> batch);
  void DrawPictures(const std::vector<ReadyLease>& batch);
  void DeliverPictures(const v1::Lease& lease, const PictureWork::Pictures& pictures);
  void Deliver(const v1::Lease& lease, SampledGroup sampled, double sample_seconds);
  bool TakeScores(const v1::Lease& lease, const std::vector<absl::StatusOr<reward::Scores>>& scores,
                  double seconds, SampledGroup& sampled);
  absl::StatusOr<v1::InsertResponse::Ack> Send(const v1::Lease& lease, SampledGroup sampled,
                                               double sample_seconds, double reward_seconds);
  void NotDelivered(const v1::Lease& lease, const absl::Status& why, double seconds);
  void Finish(uint64_t lease_id, const WorkStream::Outcome& outcome);
  // Waits between two tries to deliver the group of a lease. False if nobody wants it any more.
  bool Pause(uint64_t lease_id, absl::Duration wait);
  void AwaitRewards();
  void Fail(const absl::Status& why);  // Ends Serve, for good.
  // Both give back `leases` and all others, say goodbye and fail. `why` in one line.
  void FailFull(const std::string& why, const std::vector<v1::Lease>& leases);
  // `why`: as ApplyNewest says it.
  void FailUnusable(const absl::Status& why, const std::vector<v1::Lease>& leases);
  void GiveBack(const std::string& why, const std::vector<v1::Lease>& leases);
  void OfferCredit();
  void RenewLoop();
  bool LookAtSampler(bool stalled);

  const RunSpec spec_;
  const std::string worker_id_;
  const std::unique_ptr<reward::RewardClient> rewards_;
  RolloutMetrics& metrics_;
  weights::FollowMetrics& follow_metrics_;
  const Clock& clock_;

  WorkStream stream_;
  HeldLeases leases_;
  SamplerProgress progress_;
  weights::ContentStore own_content_;  // In use if the worker does not relay.
  ConditioningSource conditioning_;
  std::vector<std::unique_ptr<buffer::ReplayClient>> buffers_;  // By shard.
  std::vector<std::unique_ptr<ExperienceSender>> senders_;      // By rank.

  // Held from computing a credit until it is written, so that the last written credit is the
  // newest.
  mutable absl::Mutex credit_mutex_;
  std::optional<PolicyVersion> applied_ ABSL_GUARDED_BY(credit_mutex_);
  bool has_rewards_ ABSL_GUARDED_BY(credit_mutex_) = false;  // A server has described itself.
  absl::Status failure_ ABSL_GUARDED_BY(credit_mutex_);

  SamplerModel model_;  // Used only by the sampler thread.
  absl::Notification stopping_;
  absl::Notification run_complete_;
  BoundedQueue<std::function<void()>> tasks_{256};
  // Apart from tasks_, whose groups may wait for reward servers while the sampler is idle.
  BoundedQueue<std::function<void()>> preparations_{256};
  std::unique_ptr<weights::WeightFollower> follower_;
  std::unique_ptr<PictureWork> pictures_;
  std::vector<std::thread> threads_;
};

}  // namespace oxbow::rollout
