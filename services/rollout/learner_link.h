// SPDX-License-Identifier: Apache-2.0
// A worker's link to one epoch of the learner: the stream by which it asks for work and says how
// that ends, the leases it holds, and its credit for more. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/trace.h"
#include "oxbow/v1/coordinator.grpc.pb.h"
#include "services/reward/reward_client.h"
#include "services/rollout/held_leases.h"
#include "services/rollout/rollout_metrics.h"
#include "services/rollout/run_spec.h"

namespace oxbow::rollout {

// The worker's end of Coordinator.Work: one stream that many threads write and one thread reads.
class WorkStream {
 public:
  WorkStream(v1::Coordinator::Stub& stub, const RunSpec& spec);

  // Opens the stream and says hello, unless it was cancelled. Requires that no stream is open.
  void Open();
  // Reads one message; false when the stream has ended (Close returns the reason). Only one thread
  // may read.
  bool Read(v1::WorkResponse& response);
  // Ends the stream and returns its status. Called by the reader, after Read returned false.
  absl::Status Close();
  // Makes a blocked Read and every later one return false; may be called before Open.
  void Cancel();
  // Waits until Read has returned false; returns at once if no stream is open. False after
  // `timeout`.
  bool AwaitEnd(absl::Duration timeout);

  // Writes without an open stream are dropped: the learner notices by expiry and renewals.
  void Credit(PolicyVersion version, uint32_t groups);
  // Without leases it is a heartbeat. `waiting_for`: why a reward server is waited for, or empty.
  void Renew(const std::vector<uint64_t>& lease_ids, const std::string& waiting_for);
  // The leases of the oldest unanswered Renew that are missing in this answer: the learner has
  // given them to other workers. Called by the reader, once per answer.
  std::vector<uint64_t> Expired(const v1::WorkResponse::Renewed& renewed);
  // How a lease ended at the worker.
  struct Outcome {
    std::string failure;     // Empty: the sink accepted the group.
    bool unscored = false;   // The failure is that a reward server answered without a score.
    bool discarded = false;  // The group was finished and could not be delivered.
    bool elsewhere = false;  // The failure is of a service that the worker asked.
  };
  void Finished(uint64_t lease_id, const Outcome& outcome);
  void Unscored(uint64_t lease_id, uint32_t samples, const std::string& reason);
  void Goodbye();

 private:
  using Stream = grpc::ClientReaderWriter<v1::WorkRequest, v1::WorkResponse>;
  v1::WorkRequest Request() const;
  void Write(const v1::WorkRequest& request);

  v1::Coordinator::Stub& stub_;
  const RunSpec& spec_;
  absl::Mutex mutex_;
  // Shared: the reader blocks in Read without the lock while others write.
  std::shared_ptr<Stream> stream_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);
  // Lease ids of unanswered renewals on this stream; answers come in order.
  std::deque<std::vector<uint64_t>> renewals_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = true;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

// Whether a worker's sampler stands still: a GPU that hangs blocks the sampler's thread, and the
// other threads of the process go on. A worker whose sampler stands still renews no lease that
// waits for it and wants no more, so that others make its groups.
class SamplerProgress {
 public:
  SamplerProgress(const Clock& clock, absl::Duration standstill_max);

  // The sampler has done something: a forward pass, new weights, a look for work.
  void Advanced();

  // True if the last Advanced is longer ago than standstill_max, and than twice the longest pause
  // from which the sampler came back: a slow device is not one that hangs.
  bool Stalled() const;

 private:
  const Clock& clock_;
  mutable absl::Mutex mutex_;
  absl::Duration patience_ ABSL_GUARDED_BY(mutex_);
  absl::Duration last_ ABSL_GUARDED_BY(mutex_);
};

class LearnerLink {
 public:
  using Outcome = WorkStream::Outcome;

  // All outlive it. Each new lease is given to `take`.
  LearnerLink(const RunSpec& spec, v1::Coordinator::Stub& coordinator,
              reward::RewardClient& rewards, RolloutMetrics& metrics, const Clock& clock,
              std::function<void(const v1::Lease&)> take);

  // Serves one connection and returns the reason of its end.
  absl::Status Serve();
  // Takes no more leases, waits up to `timeout` until the held ones are delivered, says goodbye and
  // ends Serve.
  void Leave(absl::Duration timeout);
  // Ends Serve and the loops below, for good.
  void Stop();

  // Waits until a reward server has described itself: a worker that can have nothing scored asks
  // for nothing; renewals say what it waits for.
  void AwaitRewards();
  // Renews leases at a third of their time, unless they wait for a sampler that stands still, and
  // sends heartbeats, until Stop.
  void RenewLoop();

  // The sampler has these weights.
  void Applied(PolicyVersion version);
  // Says what the worker can take.
  void OfferCredit();
  void Finish(uint64_t lease_id, const Outcome& outcome);
  void Unscored(uint64_t lease_id, uint32_t samples, const std::string& reason) {
    stream_.Unscored(lease_id, samples, reason);
  }
  // Waits between two tries to deliver what was made for a lease. False if nobody wants it any
  // more.
  bool Pause(uint64_t lease_id, absl::Duration wait) const;
  // The worker cannot sample: gives back `leases` and all others, says goodbye and fails. `why`, in
  // one line: kResourceExhausted, or a device's error.
  void GiveUp(absl::Status why, const std::vector<v1::Lease>& leases);

  Trace TraceOf(const v1::Lease& lease) const;
  HeldLeases& leases() { return leases_; }
  SamplerProgress& progress() { return progress_; }
  bool stopping() const { return stopping_.HasBeenNotified(); }
  // The learner said that the run is complete.
  bool run_complete() const { return run_complete_.HasBeenNotified(); }
  // Why this worker cannot serve the epoch; OK while it can.
  absl::Status failure() const;

 private:
  void OnMessage(const v1::WorkResponse& message);
  void DropExpired(const v1::WorkResponse::Renewed& renewed);
  void Fail(const absl::Status& why);  // Ends Serve, for good.
  bool LookAtSampler(bool stalled);

  const RunSpec& spec_;
  reward::RewardClient& rewards_;
  RolloutMetrics& metrics_;
  const Clock& clock_;
  const std::function<void(const v1::Lease&)> take_;
  WorkStream stream_;
  HeldLeases leases_;
  SamplerProgress progress_;
  absl::Notification stopping_;
  absl::Notification run_complete_;

  // Held from computing a credit until it is written, so that the last written credit is the
  // newest.
  mutable absl::Mutex mutex_;
  std::optional<PolicyVersion> applied_ ABSL_GUARDED_BY(mutex_);
  bool has_rewards_ ABSL_GUARDED_BY(mutex_) = false;  // A server has described itself.
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

// How a lease ends whose work came to this. A service that was away, busy or silent is no failure
// of the worker.
LearnerLink::Outcome OutcomeOf(const absl::Status& status);

}  // namespace oxbow::rollout
