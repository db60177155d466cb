// SPDX-License-Identifier: Apache-2.0
// Ends calls whose peer is silent: a deadline of progress, where a deadline of the whole call would
// depend on how many bytes there are and how fast the network is. One thread for all calls.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <set>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace oxbow::rpc {

// Thread-safe.
class SilenceGuard {
 public:
  explicit SilenceGuard(const Clock& clock);
  ~SilenceGuard();  // No call is guarded any more.

  // Guards one call while it lives.
  class Watched {
   public:
    // `guard` and `context` outlive this. A call that begins after CancelAll is cancelled at once.
    Watched(SilenceGuard& guard, grpc::ClientContext& context, absl::Duration silence_max);
    ~Watched();
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;

    void SignOfLife();
    // How the call has ended, of what Finish said. kDeadlineExceeded: the guard has ended it
    // because its peer was silent. kUnavailable also for a server that cancelled it because it
    // shuts down.
    absl::Status Ended(const grpc::Status& finished) const;

   private:
    friend class SilenceGuard;
    SilenceGuard& guard_;
    grpc::ClientContext& context_;
    const absl::Duration silence_max_;
    absl::Duration heard_;
    bool silent_ = false;
  };

  // Cancels all calls, and those that come later.
  void CancelAll();
  bool cancelled() const;

 private:
  void Guard();

  const Clock& clock_;
  mutable absl::Mutex mutex_;
  absl::CondVar changed_;
  std::set<Watched*> calls_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace oxbow::rpc
