// SPDX-License-Identifier: Apache-2.0
// Keeps a worker's copy of the newest weights: watches, fetches missing chunks, verifies every
// byte.
//
//   watch thread:  manifest, peers -> the newest waits
//   fetch thread:  CheckManifest -> missing chunks by broadcast, from peers, or from the learner,
//                  each hash verified
//   torch thread:  TakeNewest -> load -> probe -> Report
//
// A chunk with a wrong hash is dropped and fetched from another source. A broken stream is resumed
// where it broke. A snapshot that was not verified is never given out. Of the manifests that come
// while a snapshot is fetched, only the newest is fetched next. Thread-safe.
#pragma once

#include <atomic>
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
#include "oxbow/v1/weight_channel.pb.h"
#include "services/weights/broadcast_group.h"
#include "services/weights/content_fetcher.h"
#include "services/weights/download.h"
#include "services/weights/snapshot.h"
#include "services/weights/weight_relay.h"
#include "services/weights/weights_metrics.h"

namespace oxbow::weights {

// The worker's side of the broadcast: follows invitations and receives the rounds of its group.
//
//   Invite (watch thread)   -->  own thread: joins
//   TakePart (fetch thread) -->  the rounds it owes the broadcast group, chunks into its download
//
// If anything fails, the download has more chunks to fetch elsewhere, and this member is in no
// broadcast group until it is invited again. Thread-safe, with one call of TakePart at a time.
class BroadcastReceiver {
 public:
  // Rounds of more than `bytes_max` are refused.
  BroadcastReceiver(JoinBroadcastGroup join, uint64_t bytes_max, FollowMetrics& metrics);
  ~BroadcastReceiver();

  // Leaves the present broadcast group after the round that is under way, and joins this one.
  void Invite(const v1::WatchResponse::Invitation& invitation);

  // Takes part in the rounds that have begun and that it has not seen, if they belong to the
  // broadcast group that this member is in or is about to join.
  void TakePart(const v1::WatchResponse::Rounds& rounds, Download& download);

  // Ends the calls that are under way, and later ones at once.
  void Stop();

 private:
  struct Seat {
    uint64_t broadcast_group = 0;
    uint64_t rounds = 0;                    // Rounds that it took part in.
    std::shared_ptr<BroadcastGroup> bytes;  // Shared: Stop aborts it while it is in use.
  };
  void Run();
  std::optional<v1::WatchResponse::Invitation> NextInvitation();
  void Follow(const v1::WatchResponse::Invitation& invitation);
  std::shared_ptr<BroadcastGroup> BeginRound(const v1::WatchResponse::Rounds& rounds);

  const JoinBroadcastGroup join_;
  const uint64_t bytes_max_;
  FollowMetrics& metrics_;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> cancel_joining_ = false;  // A newer invitation has come, or Stop.
  std::optional<v1::WatchResponse::Invitation> invitation_ ABSL_GUARDED_BY(mutex_);  // The newest.
  bool joining_ ABSL_GUARDED_BY(mutex_) = false;  // The own thread has taken it.
  bool in_round_ ABSL_GUARDED_BY(mutex_) = false;
  Seat seat_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

struct VerifiedSnapshot {
  v1::SnapshotManifest manifest;
  ChunksByHash chunks;       // All that the manifest names are in memory,
  PlacedByHash placed = {};  // or are read when they are wanted.
  uint64_t fetched_bytes = 0;
  absl::Duration fetch_time;

  // One tensor of the manifest. kUnavailable names a file that has other bytes now.
  absl::StatusOr<io::TensorBytes> Tensor(const v1::TensorManifest& entry) const;
};

class WeightFollower {
 public:
  struct Options {
    std::vector<std::string> endpoints;  // Learners, tried in turn.
    Epoch epoch;
    std::string worker_id;
    absl::Duration timeout = absl::Seconds(60);      // How long the learner may be silent,
    absl::Duration peer_silence = absl::Seconds(3);  // and a peer.
    int tries = 8;                                   // Fetches without a new verified chunk.
    absl::Duration backoff_first = absl::Milliseconds(50);
    absl::Duration backoff_max = absl::Seconds(2);
    uint64_t bytes_max = uint64_t{64} << 30;
    ChunkCheck chunk_check = ChunkCheck::kXxh3;
    // Gives the first download what this machine has. Null: nothing.
    std::function<void(const v1::SnapshotManifest& manifest, Download& download)> local;
    WeightRelay* relay = nullptr;  // Passes chunks on; outlives the follower. May be null.
    JoinBroadcastGroup
        join_broadcast_group;  // Takes part where the learner broadcasts; null: never.
    std::string broadcast_device = "cpu";
  };

  // Starts to watch. `on_ready` is called from the fetch thread when TakeNewest has something.
  WeightFollower(Options options, FollowMetrics& metrics, const Clock& clock,
                 std::function<void()> on_ready);
  ~WeightFollower();  // Stops. No other thread may be in a call.

  // Cancels all calls under way. Report then and later returns kCancelled. For owners that must
  // join threads that may be in a call.
  void Stop();

  // A verified chunk that this worker has; null if it has not.
  Chunk Held(const std::string& sha256);

  // A chunk of a snapshot that was taken is elsewhere, too: nothing here holds it any more.
  void Place(const std::string& sha256, const Placed& placed);

  // A chunk of the snapshot that was taken is no longer where it was placed: the newest snapshot is
  // fetched again, and what has been lost of it from others.
  void FetchAgain();

  // The newest verified snapshot that was not taken yet.
  std::optional<VerifiedSnapshot> TakeNewest();

  // Tells the learner whether a snapshot was applied or refused. `report` needs no epoch or worker
  // id. Best effort.
  absl::Status Report(v1::ReportAppliedRequest report);

 private:
  // The announcement of a learner.
  struct Announcement {
    v1::WatchResponse response;
    std::string learner;
  };
  struct Watching {
    grpc::ClientContext* call = nullptr;  // Null: none is under way.
    std::string learner;                  // The last one watched.
    v1::SnapshotManifest told;            // The last that came: the next one may be a delta to it.
  };
  struct Version {
    uint64_t policy = 0;
    std::string sha256;
  };

  void WatchLoop();
  absl::Status WatchOnce(const std::string& endpoint);
  absl::Status TakeManifest(v1::WatchResponse& response);
  void FetchLoop();
  std::optional<Announcement> AwaitAnnouncement();
  absl::Status Obtain(const Announcement& announcement);
  absl::Status ObtainChunks(const Announcement& announcement, PeerFaults& faults);
  void TakePlaces(VerifiedSnapshot& snapshot);
  uint64_t OfThisMachine(const v1::SnapshotManifest& manifest, Download& download);
  void ReportRefused(const v1::SnapshotManifest& manifest, const absl::Status& why);
  bool Sleep(absl::Duration duration);  // False if stopping.
  ChunkStore& store() { return options_.relay != nullptr ? options_.relay->store() : own_store_; }

  const Options options_;
  FollowMetrics& metrics_;
  const Clock& clock_;
  const std::function<void()> on_ready_;
  ChunkStore own_store_;  // In use if the worker does not relay.
  ContentFetcher fetcher_;
  const std::unique_ptr<BroadcastReceiver> member_;  // Null: takes part in no broadcast.

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Watching watching_ ABSL_GUARDED_BY(mutex_);
  std::optional<Announcement> announced_ ABSL_GUARDED_BY(mutex_);  // Not fetched yet.
  std::optional<VerifiedSnapshot> ready_ ABSL_GUARDED_BY(mutex_);
  std::optional<Version> have_ ABSL_GUARDED_BY(mutex_);
  std::thread watch_thread_;
  std::thread fetch_thread_;
};

}  // namespace oxbow::weights
