// A rollout worker's life: find the learner, serve its epoch, find it again, until told to stop.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "oxbow/v1/coordinator.grpc.pb.h"
#include "services/rollout/engagement.h"

namespace oxbow::rollout {

class Worker {
 public:
  struct Options {
    std::string learner;    // host:port
    std::string worker_id;  // Unique per process.
    std::string host;
    at::Device device = at::kCPU;
    absl::Duration register_timeout = absl::Seconds(10);
    absl::Duration backoff_first = absl::Milliseconds(50);
    absl::Duration backoff_max = absl::Seconds(1);
    absl::Duration leave_timeout = absl::Seconds(30);
    // Passes weights on to other workers, over epochs; outlives the worker. Null: it does not.
    weights::WeightRelay* relay = nullptr;
    weights::JoinCircle join_circle;  // Null: it gets weights by the relay alone.
  };

  Worker(Options options, RolloutMetrics& metrics, weights::FollowMetrics& follow_metrics,
         const Clock& clock);
  ~Worker();

  // Serves until Stop. OK then; an error if the run can never be served by this worker.
  absl::Status Run();

  // Delivers what is held, then makes Run return. From any thread; returns at once if not engaged.
  void Stop();

 private:
  absl::StatusOr<v1::RegisterResponse> Register();
  absl::Status ServeEpoch(const v1::RegisterResponse& registration);
  bool Pause(absl::Duration duration);  // False if stopping.

  const Options options_;
  RolloutMetrics& metrics_;
  weights::FollowMetrics& follow_metrics_;
  const Clock& clock_;
  const std::unique_ptr<v1::Coordinator::Stub> stub_;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Shared: Stop talks to it while Run may be letting go of it.
  std::shared_ptr<Engagement> engagement_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow::rollout
