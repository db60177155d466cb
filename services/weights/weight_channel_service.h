// Serves published snapshots: the newest manifest to who watches, chunks to who
// asks by hash.
//
// Publish never waits for watchers, and a watcher that is slow finds only the
// newest when it looks again: nothing is queued per watcher. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/ids.h"
#include "oxbow/v1/weight_channel.grpc.pb.h"
#include "services/weights/chunk_store.h"
#include "services/weights/weights_metrics.h"

namespace oxbow::weights {

class WeightChannelService : public v1::WeightChannel::Service {
 public:
  struct Options {
    Epoch epoch;
    size_t snapshots_kept = 3;
    uint64_t bytes_max = uint64_t{64} << 30;
    uint64_t piece_bytes = kSnapshotChunkBytes;  // Of one FetchResponse.
  };
  using OnReport = std::function<void(const v1::ReportAppliedRequest&)>;

  // `on_report` is called from server threads, for every report of this epoch.
  WeightChannelService(Options options, PublishMetrics& metrics, const Clock& clock,
                       OnReport on_report);

  // Makes `snapshot` the newest and wakes the watchers. kResourceExhausted if
  // it exceeds the budget.
  absl::Status Publish(const Snapshot& snapshot);

  // Ends every Watch, so that the server can shut down within its grace.
  void Stop();

  // `epoch` in requests may be 0 (unknown yet); any other than ours is ABORTED.
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::SnapshotManifest>* writer) override;
  grpc::Status Fetch(grpc::ServerContext* context, const v1::FetchRequest* request,
                     grpc::ServerWriter<v1::FetchResponse>* writer) override;
  grpc::Status ReportApplied(grpc::ServerContext* context, const v1::ReportAppliedRequest* request,
                             v1::ReportAppliedResponse* response) override;

 private:
  grpc::Status CheckEpoch(uint64_t epoch) const;
  bool SendChunk(const std::string& hash, const std::string& bytes, uint64_t offset,
                 grpc::ServerWriter<v1::FetchResponse>& writer);

  const Options options_;
  PublishMetrics& metrics_;
  const Clock& clock_;
  const OnReport on_report_;
  ChunkStore store_;

  absl::Mutex mutex_;
  std::optional<v1::SnapshotManifest> newest_ ABSL_GUARDED_BY(mutex_);
  uint64_t publications_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace oxbow::weights
