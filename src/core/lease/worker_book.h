// SPDX-License-Identifier: Apache-2.0
// Workers that get leases. A worker whose leases fail one after another is bad: it rests, and then
// gets one lease as a trial. A success makes it good again.
//
//   rest after the n-th failure in a row = min(rest_first * 2^(n - failures_max), rest_max)
//
// A failure elsewhere, of a service that the worker asked, does not make it bad: it gets one lease
// per rest_elsewhere until it succeeds, since a service that is away fails all workers alike.
//
// A worker is live while it is connected. A bad one stays bad if it leaves and comes back.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace oxbow::lease {

enum class Blame {
  kWorker,
  kElsewhere,
  kNobody,  // The lease would fail everywhere.
};

// Not thread-safe. The clock is the only source of time.
class WorkerBook {
 public:
  struct Rule {
    uint32_t failures_max = 3;
    absl::Duration rest_first = absl::Seconds(30);
    absl::Duration rest_max = absl::Minutes(10);
    absl::Duration rest_elsewhere = absl::Seconds(1);
    absl::Duration remembered = absl::Hours(1);  // The failures of a worker that left.
  };
  struct Record {
    bool live = false;
    bool asks = false;       // It waits for leases.
    bool proven = false;     // It has had a success since it joined.
    uint32_t failures = 0;   // In a row, by the worker itself.
    bool elsewhere = false;  // The last lease failed elsewhere.
    std::string reason;      // Why it failed last.
    absl::Duration failed;   // When that was.
    absl::Duration rests_until;
  };

  WorkerBook(const Rule& rule, const Clock& clock) : rule_(rule), clock_(clock) {}

  void Join(const std::string& worker) { records_[worker].live = true; }
  void Leave(const std::string& worker);
  void Asks(const std::string& worker, bool asks);

  void Succeeded(const std::string& worker);
  // True if the worker rests from now on.
  bool Failed(const std::string& worker, const std::string& reason, Blame blame = Blame::kWorker);

  // Whether a worker that holds `running` leases may be given another one.
  bool Admits(const std::string& worker, uint64_t running) const;
  bool Bad(const std::string& worker) const;
  // Whether what it fails says something about the lease: it is live, proven and not bad.
  bool Vouches(const std::string& worker) const;
  uint64_t vouching() const;
  uint64_t bad() const;  // Live ones.
  // Whether a live worker that is not one of these, and does not rest, asks for leases or `holds`
  // some.
  bool AnotherMayTake(const std::vector<std::string>& failed,
                      const absl::flat_hash_map<std::string, uint64_t>& holds) const;

  // Since when all live workers are bad, as the last calls of Look saw it; nothing if one is not or
  // none is live.
  void Look();
  std::optional<absl::Duration> all_bad_since() const { return all_bad_since_; }
  // The worker that failed last, of all bad ones; empty if none is bad.
  std::string last_bad() const;
  // Null for a worker that is not live and has not failed.
  const Record* Find(const std::string& worker) const;

 private:
  bool Rests(const Record& record) const { return clock_.Now() < record.rests_until; }
  bool Bad(const Record& record) const { return record.failures >= rule_.failures_max; }
  bool Vouches(const Record& record) const { return record.live && record.proven && !Bad(record); }

  const Rule rule_;
  const Clock& clock_;
  std::map<std::string, Record> records_;
  std::optional<absl::Duration> all_bad_since_;
};

}  // namespace oxbow::lease
