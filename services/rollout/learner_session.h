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

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "services/buffer/replay_client.h"
#include "services/rollout/conditioning_source.h"
#include "services/rollout/lease_sampler.h"
#include "services/weights/weight_relay.h"

namespace oxbow::rollout {

class LocalWeights;

class LearnerSession {
 public:
  // All references outlive it. `rewards` serves the spec's reward names; the session owns it,
  // because the caller of Leave may keep the session alive longer than the caller of Serve.
  // `relay`, if not null, forwards this worker's weights to others; `join_broadcast_group`, if not
  // null, takes part in broadcasts.
  LearnerSession(RunSpec spec, v1::Coordinator::Stub& coordinator,
                 std::unique_ptr<reward::RewardClient> rewards, RolloutMetrics& metrics,
                 weights::FollowMetrics& follow_metrics, const Clock& clock,
                 weights::WeightRelay* relay = nullptr,
                 weights::JoinBroadcastGroup join_broadcast_group = nullptr,
                 const LocalWeights* local_weights = nullptr);
  ~LearnerSession();

  // Serves one connection and returns the reason of its end. May be called again during the same
  // epoch.
  absl::Status Serve() { return link_.Serve(); }

  // Takes no more leases, waits up to `timeout` until the held ones are delivered, says goodbye and
  // ends Serve. From any thread.
  void Leave(absl::Duration timeout) { link_.Leave(timeout); }

  // The learner said that the run is complete.
  bool run_complete() const { return link_.run_complete(); }
  // Why this worker cannot serve the epoch: its reward servers are not what it needs, or its device
  // has too little memory.
  absl::Status failure() const { return link_.failure(); }

 private:
  void Take(v1::Lease lease);
  // `no_head`: set if the replayed head could not be read.
  absl::StatusOr<ReadyLease> Prepared(v1::Lease lease, bool& no_head);
  absl::StatusOr<rl::Trajectory> ReadHead(const v1::Lease& lease);
  void WorkOn(TaskQueue& queue, int threads);

  const RunSpec spec_;
  const std::unique_ptr<reward::RewardClient> rewards_;
  LearnerLink link_;
  weights::ContentStore own_content_;  // In use if the worker does not relay.
  ConditioningSource conditioning_;
  std::vector<std::unique_ptr<buffer::ReplayClient>> buffers_;  // By shard.
  GroupDelivery delivery_;
  SamplerModel model_;  // The sampler's.
  TaskQueue tasks_{256};
  // Apart from tasks_, whose groups may wait for reward servers while the sampler is idle.
  TaskQueue preparations_{256};
  weights::WeightFollower follower_;
  PictureWork pictures_;
  LeaseSampler sampler_;
  std::vector<std::thread> threads_;
};

}  // namespace oxbow::rollout
