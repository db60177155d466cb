// SPDX-License-Identifier: Apache-2.0
// Serves published snapshots: the newest manifest to watchers, and chunks by hash. Serves other
// content by hash in the same way.
//
// Each watcher is told which peers to ask for the chunks before it asks the learner, so that the
// bytes that leave the learner do not grow with the number of watchers (relay_roster.h). Publish
// never waits for watchers. A slow watcher gets only the newest manifest when it reads again:
// nothing is queued per watcher. A watcher or a fetching worker costs a stream and no thread. If
// the learner broadcasts, the chunks that a publication changed also come by the broadcast group of
// broadcast_sender.h; all else stays the same. A watcher that has one of the last manifests is sent
// what differs from it. What is sent was serialised once, and of a watcher only the hash of its
// manifest is remembered. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/ids.h"
#include "oxbow/v1/weight_channel.grpc.pb.h"
#include "rpc/server.h"
#include "rpc/stream.h"
#include "services/weights/broadcast_sender.h"
#include "services/weights/chunk_store.h"
#include "services/weights/fetch_piece.h"
#include "services/weights/manifest_delta.h"
#include "services/weights/relay_roster.h"
#include "services/weights/weights_metrics.h"

namespace oxbow::weights {

// A WatchResponse that is sent without copying its manifest.
struct WatchMessage {
  Chunk manifest;          // A form of it; null: none.
  v1::WatchResponse rest;  // All other fields.

  std::vector<grpc::Slice> Slices() const;
};

class WeightChannelService : public v1::WeightChannel::Service, public rpc::HasStreams {
 public:
  struct Options {
    Epoch epoch;
    size_t snapshots_kept = 3;
    uint64_t bytes_max = uint64_t{64} << 30;
    uint64_t piece_bytes = kSnapshotChunkBytes;  // Bytes of one FetchResponse.
    size_t fanout = 2;                           // Watchers that ask the learner first; 0: all.
    std::function<void(uint64_t)> before_piece;  // Called with the bytes of each piece; may
                                                 // block, as a slow network. May be null.
    rpc::StreamRunner::Options streams;
    ContentStore* content = nullptr;          // Served by hash as well; outlives the service.
    JoinBroadcastGroup join_broadcast_group;  // Null: publications are not broadcast.
    std::string broadcast_device = "cpu";     // "cuda:0": NCCL, where all its members are on GPUs.
  };
  using OnReport = std::function<void(const v1::ReportAppliedRequest&)>;

  // `on_report` is called from server threads, for every report of this epoch.
  WeightChannelService(const Options& options, PublishMetrics& metrics, const Clock& clock,
                       OnReport on_report);

  // Makes `snapshot` the newest and wakes the watchers. kResourceExhausted if it exceeds the
  // budget.
  absl::Status Publish(const Snapshot& snapshot);

  // A chunk of the weights that are published; null if it is none.
  Chunk Held(const std::string& sha256) const { return store_.Find(sha256); }

  // Where others fetch what this worker holds (host:port). Empty if it does not watch, does not
  // serve others, or may not be a source.
  std::string RelayOf(const std::string& worker) const;

  // Ends every Watch, so that the server can shut down within its grace.
  void Stop();

  // `epoch` in requests may be 0 (unknown yet); any other than ours is ABORTED.
  grpc::ServerWriteReactor<WatchMessage>* Watch(grpc::CallbackServerContext* context,
                                                const v1::WatchRequest* request);
  grpc::Status ReportApplied(grpc::ServerContext* context, const v1::ReportAppliedRequest* request,
                             v1::ReportAppliedResponse* response) override;
  grpc::Status ReportPeer(grpc::ServerContext* context, const v1::ReportPeerRequest* request,
                          v1::ReportPeerResponse* response) override;

  rpc::StreamRunner& streams() override { return runner_; }

  // Serve one call. Public for callers without a network.
  rpc::Handler Fetch(FetchStream& stream);

 protected:
  // Before a Fetch is served. A test may send something else, change what is served next, or end
  // the call with an error.
  virtual absl::Status Prepare(v1::FetchRequest& request, FetchStream& stream);

 private:
  struct Published {
    uint64_t number = 0;  // Counts publications; 0: none yet.
    std::shared_ptr<const ManifestForms> forms;
  };

  class WatchStream;

  grpc::Status CheckEpoch(uint64_t epoch) const;
  // The news that a watcher has been told.
  struct Told {
    uint64_t publications = 0;
    uint64_t broadcast_group = 0;  // The broadcast group it was invited to.
    std::string manifest_sha256;   // Names the manifest it has; empty: none.
    // The version that it applied before this stream; nothing once a manifest was told.
    std::optional<uint64_t> applied;
  };
  // The next message to a watcher, with `told` updated; nothing if it has been told everything.
  std::optional<WatchMessage> Next(RelayRoster::Ticket ticket, Told& told, bool& stopped);
  void Leave(RelayRoster::Ticket ticket);
  // Logs why a chunk cannot be read.
  void NoteRead(const std::string& hash, const absl::Status& status);
  void WakeAll();

  const Options options_;
  PublishMetrics& metrics_;
  const Clock& clock_;
  const OnReport on_report_;
  ChunkStore store_;

  mutable absl::Mutex mutex_;
  Published newest_ ABSL_GUARDED_BY(mutex_);
  std::deque<ManifestForms::Shared> manifests_ ABSL_GUARDED_BY(mutex_);  // The last ones.
  RelayRoster roster_ ABSL_GUARDED_BY(mutex_);
  std::map<RelayRoster::Ticket, std::shared_ptr<WatchStream>> streams_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  // By what was said of the place of a chunk that has other bytes now: the chunk.
  std::map<std::string, std::string> lost_ ABSL_GUARDED_BY(mutex_);
  // Null: weights are not broadcast. Called under mutex_, so that a manifest and its round are told
  // together. Its own thread wakes the watchers, so it is destroyed first.
  const std::unique_ptr<BroadcastSender> groups_;
  rpc::StreamRunner runner_;  // Last: it waits for the streams.
};

}  // namespace oxbow::weights
