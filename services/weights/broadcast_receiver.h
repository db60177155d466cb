// SPDX-License-Identifier: Apache-2.0
// The worker's side of the broadcast: follows invitations and receives the rounds of its
// broadcast_group.
//
//   Invite (watch thread)   -->  own thread: joins
//   TakePart (fetch thread) -->  the rounds it owes the broadcast group, chunks into its download
//
// If anything fails, the download has more chunks to fetch elsewhere, and this member is in no
// broadcast group until it is invited again. Thread-safe, with one call of TakePart at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "oxbow/v1/weight_channel.pb.h"
#include "services/weights/broadcast_group.h"
#include "services/weights/download.h"
#include "services/weights/weights_metrics.h"

namespace oxbow::weights {

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

}  // namespace oxbow::weights
