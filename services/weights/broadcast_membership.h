// SPDX-License-Identifier: Apache-2.0
// Decides which workers are in the next broadcast_group.
//
//   joined, has weights  ->  in the next broadcast group  ->  broadcast group failed: out until it
//   reports again
//
// The members are all watchers that can take part and have shown that they hold weights of this
// run, up to a limit. When a broadcast group fails, each of its members is left out until it has
// reported the weights of that round, so that a stopped or dead member is not waited for twice. The
// members that the failure names, or all if it names none, are also left out for 1, 2, 4 ... 64
// publications while they fail in a row: a member that lives but cannot be reached costs a deadline
// more and more rarely. No clock, no I/O; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace oxbow::weights {

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

}  // namespace oxbow::weights
