// SPDX-License-Identifier: Apache-2.0
// The worker's end of Coordinator.Work: one stream that many threads write and one thread reads.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "oxbow/v1/coordinator.grpc.pb.h"

namespace oxbow::rollout {

class WorkStream {
 public:
  WorkStream(v1::Coordinator::Stub& stub, Epoch epoch, std::string worker_id);

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
  const Epoch epoch_;
  const std::string worker_id_;
  absl::Mutex mutex_;
  // Shared: the reader blocks in Read without the lock while others write.
  std::shared_ptr<Stream> stream_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);
  // Lease ids of unanswered renewals on this stream; answers come in order.
  std::deque<std::vector<uint64_t>> renewals_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = true;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace oxbow::rollout
