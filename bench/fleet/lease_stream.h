// SPDX-License-Identifier: Apache-2.0
// A simulated worker's end of Coordinator.Work: states credit for one group, waits for its lease.
// It takes no thread: gRPC's own deliver what comes.
#pragma once

#include <grpcpp/client_context.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "oxbow/v1/coordinator.grpc.pb.h"

namespace oxbow::bench {

// Thread-safe. Next has one caller.
class LeaseStream final : public grpc::ClientBidiReactor<v1::WorkRequest, v1::WorkResponse> {
 public:
  LeaseStream(v1::Coordinator::Stub& stub, uint64_t epoch, std::string worker);
  ~LeaseStream() override;  // Hangs up.

  // Asks for one group.
  void Ask();
  // Waits for the lease; nothing once the stream has ended.
  std::optional<v1::Lease> Next();
  // Milliseconds from the last Ask to its lease.
  double waited_ms();
  // Renews what is held, if anything is.
  void Renew();
  // Ends a lease; an empty failure means that the sink took the group.
  void Finished(uint64_t lease, const std::string& failure);
  // Waits for the end of the stream. False after `timeout`.
  bool AwaitEnd(absl::Duration timeout);
  // The learner said that the run is over.
  bool complete();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  v1::WorkRequest Request() const;
  void Write(v1::WorkRequest request);

  const uint64_t epoch_;
  const std::string worker_;
  grpc::ClientContext context_;
  v1::WorkResponse response_;
  absl::Mutex mutex_;
  std::deque<v1::WorkRequest> writes_ ABSL_GUARDED_BY(mutex_);  // The first is being written.
  std::optional<v1::Lease> lease_ ABSL_GUARDED_BY(mutex_);
  uint64_t held_ ABSL_GUARDED_BY(mutex_) = 0;  // Lease id; 0: none.
  absl::Duration asked_ ABSL_GUARDED_BY(mutex_);
  double waited_ms_ ABSL_GUARDED_BY(mutex_) = 0;
  bool complete_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace oxbow::bench
