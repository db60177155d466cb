// SPDX-License-Identifier: Apache-2.0
// A worker of the tests that is bad in one way, for as long as it lives. It finds a learner that
// starts again by itself.
#pragma once

#include <grpcpp/client_context.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "oxbow/v1/coordinator.grpc.pb.h"

namespace oxbow::testing {

class BadWorker {
 public:
  enum class Kind {
    kFails,          // Each lease fails at once, and it asks for more.
    kReadsNothing,   // It renews without end and reads no answer.
    kOtherRevision,  // It knocks with another revision of the protocol.
  };
  // `learner`: host:port.
  BadWorker(const std::string& learner, Kind kind);
  ~BadWorker();

  uint64_t leases() const { return leases_; }      // That it was given.
  uint64_t refusals() const { return refusals_; }  // As one of another revision.
  uint64_t cut_offs() const { return cut_offs_; }  // Streams that the learner ended.

 private:
  using Stream = grpc::ClientReaderWriter<v1::WorkRequest, v1::WorkResponse>;
  void Loop();
  bool Register();
  void Serve();
  void AskForLeases(Stream& stream);
  void FailAll(Stream& stream);
  bool Write(Stream& stream, const v1::WorkRequest& request);
  v1::WorkRequest Request() const;

  const Kind kind_;
  const std::unique_ptr<v1::Coordinator::Stub> stub_;
  std::atomic<uint64_t> leases_ = 0;
  std::atomic<uint64_t> refusals_ = 0;
  std::atomic<uint64_t> cut_offs_ = 0;
  uint64_t epoch_ = 0;
  absl::Notification leaving_;
  absl::Mutex write_mutex_;
  absl::Mutex mutex_;
  grpc::ClientContext* serving_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::thread thread_;
};

}  // namespace oxbow::testing
