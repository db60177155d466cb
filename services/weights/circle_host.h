// The learner's side of the broadcast: keeps a circle of the workers that can take part, and sends
// each publication to all of its members at once.
//
//   Published, Join, Leave, HeardOf  --->  own thread:  form a circle | send a round | wait
//
// No caller waits for the own thread. If there is no circle, or if it is busy, a publication goes
// out by the relay only; chunks that a member did not get come by the relay too. A round ends when
// a parcel takes longer than the circle allows, or all parcels take longer than round_grace + bytes
// / rate_min. Then the circle is given up, and the next one is formed without the members that
// failed (circle_roster.h). Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "oxbow/v1/weight_channel.pb.h"
#include "services/weights/circle.h"
#include "services/weights/circle_roster.h"
#include "services/weights/snapshot.h"
#include "services/weights/weights_metrics.h"

namespace oxbow::weights {

class CircleHost {
 public:
  struct Options {
    JoinCircle join;
    std::string device = "cpu";  // On a GPU: circles whose members all have a GPU use NCCL.
    size_t members_max = 64;
    size_t versions_kept = 4;  // A round sends what is new since one of these.
    absl::Duration round_grace = absl::Seconds(3);
    double rate_min = 32e6;  // Bytes per second.
  };
  using Ticket = CircleRoster::Ticket;
  using SharedManifest = std::shared_ptr<const v1::SnapshotManifest>;

  // `on_change` is called from the own thread when the result of Describe changes.
  CircleHost(Options options, PublishMetrics& metrics, const Clock& clock,
             std::function<void()> on_change);
  ~CircleHost();

  // Gives up the round and the circle; none begins afterwards.
  void Stop();

  // A watcher has come from `host`, has gone, or has applied a version.
  void Join(Ticket ticket, const v1::WatchRequest& request, const std::string& host);
  void Leave(Ticket ticket);
  void HeardOf(const std::string& worker, uint64_t version);

  // The newest snapshot, about to be announced. Begins a round if a circle stands and is free.
  void Published(SharedManifest manifest, std::shared_ptr<const ChunksByHash> chunks);

  // Adds this watcher's invitation to its circle, unless `invited` is that circle already, and the
  // rounds of its circle. Updates `invited`.
  void Describe(Ticket ticket, uint64_t& invited, v1::WatchResponse& response) const;

 private:
  struct Round {
    SharedManifest manifest;
    SharedManifest before;  // Every member has it; null: unknown.
    std::shared_ptr<const ChunksByHash> chunks;
  };
  enum class Errand { kStop, kForm, kRound };

  void Run();
  Errand NextErrand();
  void Form();
  void Invite(uint64_t circle, const std::string& address);
  void SendNext();
  absl::Status Send(Circle& circle, const Round& round);
  SharedManifest OldestOfMembers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  PublishMetrics& metrics_;
  const Clock& clock_;
  const std::function<void()> on_change_;

  mutable absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  CircleRoster roster_ ABSL_GUARDED_BY(mutex_);
  bool forming_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> cancel_forming_ = false;
  std::string address_ ABSL_GUARDED_BY(mutex_);  // The newest circle's; empty: not yet known.
  std::string device_ ABSL_GUARDED_BY(mutex_);   // The newest circle's: "cpu" or "cuda".
  std::shared_ptr<Circle> circle_ ABSL_GUARDED_BY(mutex_);  // Shared: Stop aborts it in use.
  uint64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;              // Rounds that circle_ has begun.
  std::optional<Round> round_ ABSL_GUARDED_BY(mutex_);  // The own thread has not taken it yet.
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;           // The own thread has taken a round.
  std::deque<SharedManifest> versions_ ABSL_GUARDED_BY(mutex_);  // Newest last.
  std::thread thread_;
};

}  // namespace oxbow::weights
