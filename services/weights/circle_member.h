// The worker's side of the broadcast: follows invitations, and takes what comes round its circle.
//
//   Invite (watch thread)   -->  own thread: joins
//   TakePart (fetch thread) -->  the rounds it owes the circle, chunks into its download
//
// Whatever fails, the download simply lacks more, and this member is in no circle until it is
// invited again. Thread-safe, with one call of TakePart at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "oxbow/v1/weight_channel.pb.h"
#include "services/weights/circle.h"
#include "services/weights/download.h"
#include "services/weights/weights_metrics.h"

namespace oxbow::weights {

class CircleMember {
 public:
  // Rounds of more than `bytes_max` are refused.
  CircleMember(JoinCircle join, uint64_t bytes_max, FollowMetrics& metrics);
  ~CircleMember();

  // Leaves the present circle, after the round that is under way, and joins this one.
  void Invite(const v1::WatchResponse::Invitation& invitation);

  // Takes part in the rounds begun and not seen yet, if they are of the circle this member is in or
  // about to be in.
  void TakePart(const v1::WatchResponse::Rounds& rounds, Download& download);

  // Ends what is under way, and everything later at once.
  void Stop();

 private:
  struct Seat {
    uint64_t circle = 0;
    uint64_t rounds = 0;            // Taken part in.
    std::shared_ptr<Circle> bytes;  // Shared: Stop aborts what is in use.
  };
  void Run();
  std::optional<v1::WatchResponse::Invitation> NextInvitation();
  void Follow(const v1::WatchResponse::Invitation& invitation);
  std::shared_ptr<Circle> BeginRound(const v1::WatchResponse::Rounds& rounds);

  const JoinCircle join_;
  const uint64_t bytes_max_;
  FollowMetrics& metrics_;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> cancel_joining_ = false;  // There is a newer invitation, or an end.
  std::optional<v1::WatchResponse::Invitation> invitation_ ABSL_GUARDED_BY(mutex_);  // The newest,
  bool joining_ ABSL_GUARDED_BY(mutex_) = false;  // or the own thread has taken it.
  bool in_round_ ABSL_GUARDED_BY(mutex_) = false;
  Seat seat_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace oxbow::weights
