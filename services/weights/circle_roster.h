// Who may be in the next circle.
//
//   joined, has weights  ->  in the next circle  ->  circle failed: out until heard of again
//
// A circle is as large as the set of watchers that can take part and have shown that they hold
// weights of this run, up to a limit. When one fails, each of its members is left out until it has
// reported the weights of that round, so a stopped or dead one is not waited for twice. Those the
// failure names, or all if it names nobody, further sit out 1, 2, 4 ... 64 publications while they
// fail in a row: a member that lives but cannot be reached costs a deadline ever more rarely. Pure;
// not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace oxbow::weights {

class CircleRoster {
 public:
  using Ticket = uint64_t;  // Of a watch (RelayRoster).

  explicit CircleRoster(size_t members_max) : members_max_(members_max) {}

  // A watcher that can take part, reached from `host`. `version`: of the weights it has, if any.
  void Join(Ticket ticket, const std::string& worker, const std::string& host,
            std::optional<uint64_t> version, bool on_gpu = false);
  void Leave(Ticket ticket);
  // The worker has these weights, and lives.
  void HeardOf(const std::string& worker, uint64_t version);
  void Published() { ++publications_; }

  // Whether the circle is not the one it should be.
  bool ShouldForm() const { return Eligible() != members_; }

  // Begins the next circle and gives its number; members() are its ranks 1, 2, ... No members: none
  // is to be formed.
  uint64_t Form();
  // The circle did not stand, or fell in the round of `version`; `behind` are the ranks to blame,
  // where known. Of one that did not stand, those who came may be asked again at once.
  void Failed(const std::vector<int>& behind, std::optional<uint64_t> version = std::nullopt);
  // A round of the circle went to its end.
  void Succeeded();

  uint64_t circle() const { return circle_; }
  const std::vector<Ticket>& members() const { return members_; }
  int RankOf(Ticket ticket) const;  // 0: not a member.
  std::string HostOf(Ticket ticket) const;
  bool AllOnGpus() const;  // The members.
  size_t watchers() const { return watchers_.size(); }

  // The oldest version a member has; nothing if there are no members.
  std::optional<uint64_t> OldestVersion() const;

 private:
  struct Watcher {
    std::string worker;
    std::string host;
    std::optional<uint64_t> version;
    bool on_gpu = false;
    bool heard = false;  // It has weights, and has lived through whatever failed.
  };
  struct Strikes {
    uint32_t count = 0;
    uint64_t out_until = 0;  // In publications.
  };
  std::vector<Ticket> Eligible() const;
  void Strike(const std::string& worker);

  const size_t members_max_;
  uint64_t circle_ = 0;
  uint64_t publications_ = 0;
  std::map<Ticket, Watcher> watchers_;
  std::map<std::string, Strikes> strikes_;  // By worker, which may come back.
  std::vector<Ticket> members_;
};

}  // namespace oxbow::weights
