// SPDX-License-Identifier: Apache-2.0
// The learner's side of the broadcast: keeps a broadcast group of the workers that can take part,
// and sends each publication to all of its members at once.
//
//   Published, Join, Leave, HeardOf  --->  own thread:  form a group | send a round | wait
//
// No caller waits for the own thread. If there is no broadcast group, or if it is busy, a
// publication goes out by the relay only; chunks that a member did not get come by the relay too. A
// round ends when a piece takes longer than the broadcast group allows, or all pieces take longer
// than round_grace + bytes / rate_min. Then the broadcast group is given up, and the next one is
// formed without the members that failed (BroadcastMembership). Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
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
#include "oxbow/v1/weight_channel.pb.h"
#include "services/weights/broadcast_group.h"
#include "services/weights/snapshot.h"
#include "services/weights/weights_metrics.h"

namespace oxbow::weights {

// Decides which workers are in the next broadcast group.
//
//   joined, has weights  ->  in the next group  ->  the group failed: out until it reports again
//
// The members are all watchers that can take part and have shown that they hold weights of this
// run, up to a limit. When a broadcast group fails, each of its members is left out until it has
// reported the weights of that round, so that a stopped or dead member is not waited for twice. The
// members that the failure names, or all if it names none, are also left out for 1, 2, 4 ... 64
// publications while they fail in a row: a member that lives but cannot be reached costs a deadline
// more and more rarely. No clock, no I/O; not thread-safe.
class BroadcastMembership {
 public:
  using Ticket = uint64_t;  // Names a watch, as in RelayRoster.

  explicit BroadcastMembership(size_t members_max) : members_max_(members_max) {}

  // A watcher that can take part has come from `host`. `version`: that of its weights, if any.
  void Join(Ticket ticket, const std::string& worker, const std::string& host,
            std::optional<uint64_t> version, bool on_gpu = false);
  void Leave(Ticket ticket);
  // The worker lives and has these weights.
  void HeardOf(const std::string& worker, uint64_t version);
  void Published() { ++publications_; }

  // Whether another broadcast group should be formed.
  bool ShouldForm() const { return Eligible() != members_; }

  // Begins the next broadcast group and returns its number; members() are its ranks 1, 2, ... If
  // there are no members, no broadcast group should be formed.
  uint64_t Form();
  // The broadcast group could not be formed, or failed in the round of `version`; `behind` are the
  // ranks to blame, where known. If it could not be formed, the others may be asked again at once.
  void Failed(const std::vector<int>& behind, std::optional<uint64_t> version = std::nullopt);
  // A round of the broadcast group was completed.
  void Succeeded();

  uint64_t broadcast_group() const { return group_; }
  const std::vector<Ticket>& members() const { return members_; }
  int RankOf(Ticket ticket) const;  // 0: not a member.
  std::string HostOf(Ticket ticket) const;
  bool AllOnGpus() const;  // Whether all members are.
  size_t watchers() const { return watchers_.size(); }

  // The oldest version a member has; nothing if there are no members.
  std::optional<uint64_t> OldestVersion() const;

 private:
  struct Watcher {
    std::string worker;
    std::string host;
    std::optional<uint64_t> version;
    bool on_gpu = false;
    bool heard = false;  // It has reported weights since the last failure.
  };
  struct Strikes {
    uint32_t count = 0;
    uint64_t out_until = 0;  // A number of publications.
  };
  std::vector<Ticket> Eligible() const;
  void Strike(const std::string& worker);

  const size_t members_max_;
  uint64_t group_ = 0;
  uint64_t publications_ = 0;
  std::map<Ticket, Watcher> watchers_;
  std::map<std::string, Strikes> strikes_;  // By worker id: a worker may come back.
  std::vector<Ticket> members_;
};

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
  BroadcastSender(Options options, BroadcastMetrics& metrics, const Clock& clock,
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
  // The newest broadcast group.
  struct Standing {
    std::string address;                    // Empty: not yet known.
    std::string device;                     // "cpu" or "cuda".
    std::shared_ptr<BroadcastGroup> bytes;  // Null: not formed. Shared: Stop aborts it in use.
    uint64_t begun = 0;                     // Its rounds.
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
  BroadcastMetrics& metrics_;
  const Clock& clock_;
  const std::function<void()> on_change_;

  mutable absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  BroadcastMembership roster_ ABSL_GUARDED_BY(mutex_);
  bool forming_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> cancel_forming_ = false;
  Standing standing_ ABSL_GUARDED_BY(mutex_);
  std::optional<Round> round_ ABSL_GUARDED_BY(mutex_);  // The own thread has not taken it yet.
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;           // The own thread has taken a round.
  std::deque<SharedManifest> versions_ ABSL_GUARDED_BY(mutex_);  // Newest last.
  std::thread thread_;
};

}  // namespace oxbow::weights
