// SPDX-License-Identifier: Apache-2.0
// The wanted groups, the worker that produces each, and the results that still count. A pure state
// machine: the learner's coordinator drives it in real time, `oxbow simulate` in virtual time.
//
// Group g belongs to learner step g / U. A group is pending, then leased, then accepted. If its
// lease expires or fails, the group is pending again and is granted under a new lease id. The old
// id is then fenced: a late result under it is refused. A worker whose weights are those after L_V
// committed steps is granted a group only while
//
//   accepted + running < (S + L_V + 1) U        accepted: over the whole run
//
// The table grants the lowest pending group. All groups below it are accepted or running, so its
// index is under the bound and its staleness g / U - L_V is at most S. No group is produced that
// would have to be thrown away for its staleness.
//
// A straggler, a group that takes much longer than others (lease_times.h), may be leased a second
// time, once, to a worker that holds no lease. Noise depends on the group alone, so with equal
// weights both results are equal. The first result is accepted. The other lease ends at that
// moment; its result is superseded and does not count as a failure.
//
// A failed group is kept from the workers that failed it, while another may take it (WorkerBook),
// for up to `apart` at a time. It fails the run after failures_max failures, and only if min(3, n)
// of the n workers that vouch failed it, n > 0: what others fail says nothing about a group.
//
// A lease has a maximum age, however often it is renewed: a worker may hang and renew nevertheless
// (AgeRule). The next attempt at the group may last twice as long, so that a run whose workers are
// all slow gets there.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "core/lease/lease_times.h"
#include "core/lease/worker_book.h"

namespace oxbow::lease {

// One attempt of one worker at one group.
struct LeaseGrant {
  LeaseId id;
  GroupId group;
  LearnerStep step;
  uint32_t attempt = 0;  // 1 for the first.
  std::string worker;
  bool speculative = false;  // A second lease of a running group.
};

// All that a lease table remembers. Its functions keep what belongs together in step; the table has
// the rules.
struct LeaseState {
  struct Group {
    uint32_t attempt = 0;
    uint32_t failures = 0;
    std::vector<std::string> failed_by;  // Workers, each once.
    absl::Duration failed;               // When it failed last.
    bool accepted = false;
    bool speculated = false;  // Had its second lease.
    LeaseId first;            // The accepted lease, or a live one; 0: none.
    LeaseId second;           // A live lease beside `first`, or the one it superseded; 0: none.
    absl::Duration since;     // When its first live lease was granted.
  };
  struct Live {
    LeaseGrant grant;
    absl::Duration deadline;
    absl::Duration granted;
    absl::Duration renewed = granted;
    absl::Duration waited;  // For reward servers.
  };
  using Time = std::pair<absl::Duration, uint64_t>;
  using Leases = absl::flat_hash_map<uint64_t, Live>;

  uint64_t leases_granted = 0;
  uint64_t planned = 0;              // Groups planned in the whole run, U a step.
  uint64_t accepted = 0;             // Planned groups that are accepted, or their refills.
  std::map<uint64_t, Group> groups;  // By group.
  std::set<uint64_t> pending;        // Groups to grant.
  std::map<uint64_t, absl::Duration> cooling;  // Failed groups: when each may be granted.
  Leases live;                                 // By lease.
  // (time, lease): when to look whether the lease is overdue. Every live lease has an entry that is
  // not later than its deadline. A renewal leaves the entry as it is, and so does a lease's end.
  std::priority_queue<Time, std::vector<Time>, std::greater<>> checks;
  std::set<Time> running;                                     // (since, group): with a live lease.
  absl::flat_hash_map<std::string, uint64_t> live_by_worker;  // Counts; a worker without is absent.

  // Groups that have cooled down are pending again.
  void WarmUp(absl::Duration now);
  // Ends the lease. The caller must update the record of its group.
  LeaseGrant End(Leases::iterator lease);
  // Ends a lease without a result; its id is never used again. True if its group has no other.
  bool Release(Leases::iterator lease);
};

// kDuplicate: the result of this lease was accepted before. kSuperseded: the result of the group's
// other lease came first. kFenced: the lease expired or failed, or its group is not known.
enum class AcceptOutcome { kAccepted, kDuplicate, kFenced, kSuperseded };

// Not thread-safe. The clock is the only source of time.
class LeaseTable {
 public:
  struct Options {
    Epoch epoch;                        // Lease ids of different epochs differ,
    uint64_t first_lease = 0;           // and so do those of tables that count from other numbers.
    LearnerStep first_step;             // Steps committed before; their groups count as accepted.
    uint64_t groups_per_step = 1;       // U
    uint64_t dynamic_sampling_max = 0;  // R: groups that a step may plan in place of accepted ones.
    uint64_t staleness_max = 0;         // S
    absl::Duration lease_time = absl::Seconds(30);
    uint32_t failures_max = 8;  // Reported failures of one group before the run fails,
    uint64_t failers_min = 3;   // by so many workers that vouch, or by all if there are fewer.
    absl::Duration apart = absl::Minutes(5);
    // A failed group waits this long before it is granted again; doubles with each failure.
    absl::Duration backoff_first = absl::Seconds(1);
    absl::Duration backoff_max = absl::Seconds(10);
    StragglerRule stragglers;  // Off unless asked for.
    AgeRule ages;
  };

  // `workers` outlives the table; null: nothing is known of workers, and any may take any group.
  LeaseTable(Options options, const Clock& clock, const WorkerBook* workers = nullptr);

  // Adds the U groups of the next step. Steps are planned in order, starting with first_step.
  void Plan(LearnerStep step);

  // Subtracts `count` accepted groups of an uncommitted step from accepted() and adds `count` new
  // groups in their place, the next of the step's R. They are granted before groups of later steps.
  void Refill(LearnerStep step, uint64_t count);

  // Grants the lowest pending group that this worker may take, with the weights of `weights_step`
  // committed steps, or nothing if there is none or the bound is reached.
  // `kept`: set if a pending group is kept from this worker.
  std::optional<LeaseGrant> Acquire(const std::string& worker, LearnerStep weights_step,
                                    bool* kept = nullptr);

  // Grants the longest running straggler that had no second lease yet to a worker that holds
  // nothing and whose weights keep the group within the staleness budget.
  std::optional<LeaseGrant> Speculate(const std::string& worker, LearnerStep weights_step);

  // When the longest running group that had no second lease is a straggler, which may be in the
  // past. Nothing if there is no such group, too few group times are known, or the rule is off.
  std::optional<absl::Duration> NextStraggler() const;

  // Extends a live lease of this worker to now + lease_time, but not beyond its maximum age. The
  // time since its last renewal does not count as age if `waits`: the worker waits for a reward
  // server. False if the lease is not live.
  bool Renew(const std::string& worker, LeaseId lease, bool waits = false);

  // Takes the result of a lease. `superseded` is set to the group's other lease if that ends here.
  AcceptOutcome Accept(GroupId group, LeaseId lease,
                       std::optional<LeaseGrant>* superseded = nullptr);

  // Whether this lease lives and is this worker's.
  bool Holds(const std::string& worker, LeaseId lease) const;

  // The holder gives up: the group becomes pending after a back-off, unless its other lease lives.
  // An unknown lease has no effect. `blame` is as in WorkerBook, which hears of the failure first.
  // kUnavailable, naming the group and `reason`, once the group fails the run.
  absl::Status Fail(LeaseId lease, const std::string& reason, Blame blame = Blame::kWorker);

  // The worker is gone: its leases end in `grace` at the latest, unless renewed before.
  void Depart(const std::string& worker, absl::Duration grace);

  // Ends overdue leases. Groups without another live lease become pending. Returns the ended ones.
  std::vector<LeaseGrant> Expire();

  // No lease is overdue before this time, unless a worker departs; nothing if no lease lives.
  std::optional<absl::Duration> NextExpiry() const;

  // Requires that all groups of the step are accepted. Forgets groups of earlier steps, but keeps
  // the last two committed steps, so that a worker may retry after a lost acknowledgement.
  void Commit(LearnerStep step);

  const LeaseState& state() const { return state_; }
  // The grant of a live lease; null if the lease is not live.
  const LeaseGrant* Find(LeaseId lease) const;
  uint64_t running() const { return state_.running.size(); }  // Groups, not leases.
  uint64_t pending() const { return state_.pending.size() + state_.cooling.size(); }
  uint64_t RunningOf(const std::string& worker) const;  // Leases.
  uint64_t failures(GroupId group) const;
  LearnerStep StepOf(GroupId group) const { return LearnerStep(group.value / stride()); }

 private:
  // Group ids per step: U groups, then room for R refills.
  uint64_t stride() const { return options_.groups_per_step + options_.dynamic_sampling_max; }
  bool MayTake(const std::string& worker, uint64_t group) const;
  bool FailsRun(const LeaseState::Group& record) const;
  void Add(LearnerStep step, uint64_t count);
  LeaseGrant Grant(uint64_t group, const std::string& worker, bool speculative);

  const Options options_;
  const Clock& clock_;
  const WorkerBook* workers_;
  LeaseState state_;
  GroupTimes times_;
  GroupTimes medians_;  // Their limit is that of AgeRule.
};

}  // namespace oxbow::lease
