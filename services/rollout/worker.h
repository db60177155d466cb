// SPDX-License-Identifier: Apache-2.0
// A rollout worker: finds the learner, serves its epoch, finds it again, until the run is complete
// or the worker is stopped.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "oxbow/v1/coordinator.grpc.pb.h"
#include "services/rollout/learner_session.h"

namespace oxbow::rollout {

class LocalWeights;

class Worker {
 public:
  struct Options {
    std::string learner;    // host:port
    std::string worker_id;  // Unique per process.
    std::string host;
    at::Device device = at::kCPU;
    // Frozen weights of a LoRA, or all weights of a full fine-tune, are in host memory and come to
    // the device block by block (core/model/offloaded_weights.h).
    bool offload_weights = false;
    // The folder in which learner ranks of this machine say that they lend their base to workers on
    // their GPU (core/model/lent_base.h). Empty: the worker has its own.
    std::string lent_base;
    absl::Duration register_timeout = absl::Seconds(10);
    absl::Duration backoff_first = absl::Milliseconds(50);
    absl::Duration backoff_max = absl::Seconds(1);
    absl::Duration leave_timeout = absl::Seconds(30);
    // How long to look for a learner that is away.
    absl::Duration give_up_after = absl::InfiniteDuration();
    // Forwards weights to other workers, across epochs; outlives the worker. Null: it does not
    // forward.
    weights::WeightRelay* relay = nullptr;
    weights::JoinBroadcastGroup join_broadcast_group;  // Null: weights come only through the relay.
    const LocalWeights* local_weights = nullptr;  // Outlives the worker. Null: all are fetched.
  };

  Worker(Options options, RolloutMetrics& metrics, weights::FollowMetrics& follow_metrics,
         const Clock& clock);
  ~Worker();

  // Serves until Stop, or until the learner says that the run is complete: OK. An error if this
  // worker can never serve the run; kUnavailable if the learner was away for `give_up_after`.
  absl::Status Run();

  // Delivers the held groups, then makes Run return. From any thread; returns at once without a
  // session.
  void Stop();

 private:
  absl::StatusOr<v1::RegisterResponse> Register();
  // OK if nothing is left to do: the run is complete, or the worker is stopping.
  absl::Status ServeEpoch(const v1::RegisterResponse& registration);
  bool Pause(absl::Duration duration);  // False if stopping.

  const Options options_;
  RolloutMetrics& metrics_;
  weights::FollowMetrics& follow_metrics_;
  const Clock& clock_;
  const std::unique_ptr<v1::Coordinator::Stub> stub_;

  std::string build_seen_;  // The learner's, of which a warning was given.
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Shared: Stop uses it while Run may be releasing it.
  std::shared_ptr<LearnerSession> session_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow::rollout
