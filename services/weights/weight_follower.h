// Keeps a worker's copy of the newest weights: watches, fetches what it lacks,
// verifies every byte.
//
//   Watch thread:  manifest -> CheckManifest -> fetch lacking chunks -> verify
//   each hash -> tensors torch thread:  TakeNewest -> load -> probe -> Report
//
// A chunk with a wrong hash is dropped and asked for again; a broken stream
// resumes where it broke; a snapshot that never verifies is never handed out.
// Only the newest verified one waits. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "oxbow/v1/weight_channel.grpc.pb.h"
#include "services/weights/snapshot.h"
#include "services/weights/weights_metrics.h"

namespace oxbow::weights {

struct VerifiedSnapshot {
  v1::SnapshotManifest manifest;
  TensorBytesByName tensors;
  uint64_t fetched_bytes = 0;
  absl::Duration fetch_time;
};

class WeightFollower {
 public:
  struct Options {
    std::vector<std::string> endpoints;  // Tried in turn.
    Epoch epoch;
    std::string worker_id;
    absl::Duration timeout = absl::Seconds(60);  // Of one Fetch or ReportApplied.
    int tries = 8;                               // Fetches in a row without a new verified chunk.
    absl::Duration backoff_first = absl::Milliseconds(50);
    absl::Duration backoff_max = absl::Seconds(2);
    uint64_t bytes_max = uint64_t{64} << 30;
  };

  // Starts to watch. `on_ready` is called from the watch thread when TakeNewest
  // has something.
  WeightFollower(Options options, FollowMetrics& metrics, const Clock& clock,
                 std::function<void()> on_ready);
  ~WeightFollower();  // Cancels what is under way.

  // The newest verified snapshot that was not taken yet.
  std::optional<VerifiedSnapshot> TakeNewest();

  // Tells the learner what became of a snapshot. `report` needs no epoch or
  // worker id. Best effort.
  absl::Status Report(v1::ReportAppliedRequest report);

 private:
  class Download;

  void WatchLoop();
  absl::Status WatchOnce(const std::string& endpoint);
  absl::Status Obtain(const v1::SnapshotManifest& manifest, v1::WeightChannel::Stub& stub);
  absl::Status FetchOnce(Download& download, v1::WeightChannel::Stub& stub);
  void ReportRefused(const v1::SnapshotManifest& manifest, const absl::Status& why);
  bool Sleep(absl::Duration duration);  // False if stopping.
  // Registers a call so that the destructor can cancel it; false if stopping.
  bool BeginCall(grpc::ClientContext* context);
  void EndCall();

  const Options options_;
  FollowMetrics& metrics_;
  const Clock& clock_;
  const std::function<void()> on_ready_;

  // The watch thread's own.
  ChunksByHash cache_;  // Chunks of the last verified snapshot.
  bool have_any_ = false;
  uint64_t have_version_ = 0;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* fetch_call_ ABSL_GUARDED_BY(mutex_) = nullptr;
  grpc::ClientContext* watch_call_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::optional<VerifiedSnapshot> ready_ ABSL_GUARDED_BY(mutex_);
  std::string endpoint_ ABSL_GUARDED_BY(mutex_);  // That last answered.
  std::thread thread_;
};

}  // namespace oxbow::weights
