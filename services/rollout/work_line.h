// The worker's end of Coordinator.Work: one stream that is written from many threads and read by
// one.
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

class WorkLine {
 public:
  WorkLine(v1::Coordinator::Stub& stub, Epoch epoch, std::string worker_id);

  // Opens the stream and says hello, unless the line was cancelled. Requires that none is open.
  void Open();
  // Reads one message; false when the stream has ended. Close then says why. One reader.
  bool Read(v1::WorkResponse& response);
  // Ends the stream for good and returns its status. By the reader, after Read said false.
  absl::Status Close();
  // Makes a blocked Read return false, and every later one: whoever leaves may be ahead of Open.
  void Cancel();
  // Waits until Read has said false, at once if no stream is open. False after `timeout`.
  bool AwaitEnd(absl::Duration timeout);

  // Writes on a line that is down are dropped: the learner learns from expiry and renewals.
  void Credit(PolicyVersion version, uint32_t groups);
  // Without leases: a sign of life.
  void Renew(const std::vector<uint64_t>& lease_ids);
  // The leases of the oldest unanswered Renew that this answer lacks: the learner has given them to
  // others. By the reader, once for each answer.
  std::vector<uint64_t> Expired(const v1::WorkResponse::Renewed& renewed);
  void Finished(uint64_t lease_id, const std::string& failure);
  void Goodbye();

 private:
  using Stream = grpc::ClientReaderWriter<v1::WorkRequest, v1::WorkResponse>;
  v1::WorkRequest Request() const;
  void Write(const v1::WorkRequest& request);

  v1::Coordinator::Stub& stub_;
  const Epoch epoch_;
  const std::string worker_id_;
  absl::Mutex mutex_;
  // Shared: the reader blocks in Read without the lock while writers use it.
  std::shared_ptr<Stream> stream_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);
  // Asked on this stream and not answered; answers come in order.
  std::deque<std::vector<uint64_t>> renewals_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = true;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace oxbow::rollout
