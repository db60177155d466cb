// SPDX-License-Identifier: Apache-2.0
// A worker passes verified chunks on to other workers.
//
// Serves WeightChannel.Fetch from the chunks that the worker has, and sends each missing chunk as
// soon as it has come and is verified, so that a chain of relays works as a pipeline. While a child
// waits, it gets keep-alives. A chunk that does not come ends the call, and the child asks another
// source. Chunks are named by their content, so a relay is good for several epochs: after a restart
// of the learner only what changed is fetched.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rpc/server.h"
#include "services/weights/chunk_store.h"
#include "services/weights/weights_metrics.h"

namespace oxbow::weights {

class WeightRelay {
 public:
  struct Options {
    std::string listen = "127.0.0.1:0";
    size_t snapshots_kept = 2;
    uint64_t bytes_max = uint64_t{64} << 30;
    uint64_t piece_bytes = kSnapshotChunkBytes;
    absl::Duration sign_of_life = absl::Milliseconds(300);  // Between keep-alives.
    absl::Duration unheard_wait = absl::Seconds(2);         // For a manifest that has not come yet.
    absl::Duration chunk_wait = absl::Seconds(10);          // For one chunk that is expected.
    std::function<void(uint64_t)> before_piece;             // As in WeightChannelService.
    uint64_t content_bytes_max = uint64_t{1} << 30;         // For what is no chunk of weights.
    rpc::StreamRunner::Options streams;
  };

  // kUnavailable if the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<WeightRelay>> Start(Options options,
                                                            FollowMetrics& metrics);
  ~WeightRelay();  // Ends the calls in progress.

  const std::string& endpoint() const { return server_->endpoint(); }
  ChunkStore& store() { return store_; }
  // Content that the worker keeps beside weights. It is served if it is here; nobody waits for it.
  ContentStore& content() { return content_; }

 private:
  class Service;
  WeightRelay(Options options, FollowMetrics& metrics);

  ChunkStore store_;
  ContentStore content_;
  const std::unique_ptr<Service> service_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace oxbow::weights
