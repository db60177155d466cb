// SPDX-License-Identifier: Apache-2.0
// The connection to one reward server, which may be one that somebody else wrote: it bears as many
// pings as gRPC's servers do by default, unless it is the run's own.
#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "oxbow/v1/reward.grpc.pb.h"
#include "rpc/channel.h"

namespace oxbow::reward {

// Thread-safe.
class ServerLine {
 public:
  ServerLine(std::string endpoint, rpc::Pings pings);

  // For one call.
  std::shared_ptr<v1::Reward::Stub> stub() const;

  // Hears how a call ended. After "too many pings" later calls take a new connection, on which
  // pings are rare.
  void Ended(const absl::Status& status);

  rpc::Pings pings() const;

 private:
  const std::string endpoint_;
  mutable absl::Mutex mutex_;
  rpc::Pings pings_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<v1::Reward::Stub> stub_ ABSL_GUARDED_BY(mutex_);  // Shared with its calls.
};

}  // namespace oxbow::reward
