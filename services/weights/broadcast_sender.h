// SPDX-License-Identifier: Apache-2.0
// The learner's side of the broadcast: keeps a broadcast group of the workers that can take part,
// and sends each publication to all of its members at once.
//
//   Published, Join, Leave, HeardOf  --->  own thread:  form a broadcast group | send a round |
//   wait
//
// No caller waits for the own thread. If there is no broadcast group, or if it is busy, a
// publication goes out by the relay only; chunks that a member did not get come by the relay too. A
// round ends when a piece takes longer than the broadcast group allows, or all pieces take longer
// than round_grace + bytes / rate_min. Then the broadcast group is given up, and the next one is
// formed without the members that failed (broadcast_membership.h). Thread-safe.
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
#include "services/weights/broadcast_group.h"
#include "services/weights/broadcast_membership.h"
#include "services/weights/snapshot.h"
#include "services/weights/weights_metrics.h"

namespace oxbow::weights {

class BroadcastSender {
 public:
  struct Options {
    JoinBroadcastGroup join;
    std::string device =
        "cpu";  // On a GPU: broadcast groups whose members all have a GPU use NCCL.
    size_t members_max = 64;
    size_t versions_kept = 4;  // A round sends what is new since one of these.
    absl::Duration round_grace = absl::Seconds(3);
    double rate_min = 32e6;  // Bytes per second.
  };
  using Ticket = BroadcastMembership::Ticket;
  using SharedManifest = std::shared_ptr<const v1::SnapshotManifest>;

  // `on_change` is called from the own thread when the result of Describe changes.
  BroadcastSender(Options options, PublishMetrics& metrics, const Clock& clock,
                  std::function<void()> on_change);
  ~BroadcastSender();

  // Gives up the round and the broadcast group; none begins afterwards.
  void Stop();

  // A watcher has come from `host`, has gone, or has applied a version.
  void Join(Ticket ticket, const v1::WatchRequest& request, const std::string& host);
  void Leave(Ticket ticket);
  void HeardOf(const std::string& worker, uint64_t version);

  // The newest snapshot, about to be announced. Begins a round if a broadcast group stands and is
  // free.
  void Published(SharedManifest manifest, std::shared_ptr<const ChunksByHash> chunks);

  // Adds this watcher's invitation to its broadcast group, unless `invited` is that broadcast group
  // already, and the rounds of its broadcast_group. Updates `invited`.
  void Describe(Ticket ticket, uint64_t& invited, v1::WatchResponse& response) const;

 private:
  struct Round {
    SharedManifest manifest;
    SharedManifest before;  // Every member has it; null: unknown.
    std::shared_ptr<const ChunksByHash> chunks;
  };
  enum class Task { kStop, kForm, kRound };

  void Run();
  Task NextTask();
  void Form();
  void Invite(uint64_t broadcast_group, const std::string& address);
  void SendNext();
  absl::Status Send(BroadcastGroup& broadcast_group, const Round& round);
  SharedManifest OldestOfMembers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  PublishMetrics& metrics_;
  const Clock& clock_;
  const std::function<void()> on_change_;

  mutable absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  BroadcastMembership roster_ ABSL_GUARDED_BY(mutex_);
  bool forming_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> cancel_forming_ = false;
  std::string address_
      ABSL_GUARDED_BY(mutex_);  // The newest broadcast group's; empty: not yet known.
  std::string device_ ABSL_GUARDED_BY(mutex_);  // The newest broadcast group's: "cpu" or "cuda".
  std::shared_ptr<BroadcastGroup> group_ ABSL_GUARDED_BY(mutex_);  // Shared: Stop aborts it in use.
  uint64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;                     // Rounds that group_ has begun.
  std::optional<Round> round_ ABSL_GUARDED_BY(mutex_);  // The own thread has not taken it yet.
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;           // The own thread has taken a round.
  std::deque<SharedManifest> versions_ ABSL_GUARDED_BY(mutex_);  // Newest last.
  std::thread thread_;
};

}  // namespace oxbow::weights
