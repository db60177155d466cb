// Which groups are wanted, who produces each, and which results still count. A pure state machine.
//
// Group g belongs to learner step g / U. A group is pending -> leased -> accepted; an expired,
// failed or abandoned lease makes it pending again under a new lease id, so a late result of the
// old attempt is told apart (fenced). A worker whose weights are those after L_V committed steps is
// granted a group only while core/replay/admission.h admits it:
//
//   accepted + running < (S + L_V + 1) U        accepted: over the whole run
//
// The lowest pending group is granted, all below it are accepted or running, so its index is under
// the bound and its staleness g / U - L_V is at most S: nothing is produced that would be thrown
// away.
//
// A group that takes much longer than others (group_times.h) may be leased a second time, once, to
// a worker that holds nothing. Noise depends on the group alone, so with equal weights both results
// are equal. The first is accepted; the other lease ends at that moment and its result is
// superseded, which is nobody's failure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "services/learner/desk/group_times.h"

namespace oxbow::learner {

struct LeaseGrant {
  LeaseId id;
  GroupId group;
  LearnerStep step;
  uint32_t attempt = 0;  // 1 for the first.
  std::string worker;
  bool speculative = false;  // A second lease of a group that is under way.
};

// kDuplicate: this very result was accepted before. kSuperseded: another attempt at the group was
// first. kFenced: the lease expired or failed, or is of no known group.
enum class AcceptOutcome { kAccepted, kDuplicate, kFenced, kSuperseded };

// All that a lease table remembers.
struct LeaseBook {
  struct Group {
    uint32_t attempt = 0;
    uint32_t failures = 0;
    bool accepted = false;
    bool speculated = false;  // Had its second lease.
    LeaseId first;            // The accepted lease, or a live one; 0: none.
    LeaseId second;           // A live one beside it, or the one it superseded; 0: none.
    absl::Duration since;     // When the group came under way.
  };
  struct Live {
    LeaseGrant grant;
    absl::Duration deadline;
  };
  using Times = std::set<std::pair<absl::Duration, uint64_t>>;

  uint64_t leases_granted = 0;
  uint64_t planned = 0;                        // Groups planned in the run so far, U a step.
  uint64_t accepted = 0;                       // Of them, or of refills in their place.
  std::map<uint64_t, Group> groups;            // By group.
  std::set<uint64_t> pending;                  // Groups to grant.
  std::map<uint64_t, absl::Duration> cooling;  // Groups that failed, and when they may be granted.
  std::map<uint64_t, Live> live;               // By lease.
  Times deadlines;                             // (deadline, lease) of the live ones.
  Times running;                               // (since, group) of groups with a live lease.
  std::map<std::string, uint64_t> holders;     // Worker -> its live leases; none is 0.
};

// Not thread-safe. Time comes from the clock alone.
class LeaseTable {
 public:
  struct Options {
    Epoch epoch;                   // Lease ids of different epochs differ.
    LearnerStep first_step;        // Steps committed before; their groups count as accepted.
    uint64_t groups_per_step = 1;  // U
    uint64_t refill_max = 0;       // R: groups that may be planned in place of accepted ones.
    uint64_t staleness_max = 0;    // S
    absl::Duration lease_time = absl::Seconds(30);
    uint32_t failures_max = 8;  // Reported failures of one group before the run fails.
    absl::Duration backoff_first =
        absl::Seconds(1);  // Before a failed group is granted again; doubles.
    absl::Duration backoff_max = absl::Seconds(10);
    StragglerRule stragglers;  // Off unless asked for.
  };

  LeaseTable(Options options, const Clock& clock);

  // Adds the U groups of the next step. Steps are planned in order, starting with first_step.
  void Plan(LearnerStep step);

  // Takes `count` accepted groups of an uncommitted step out of the count and adds as many new ones
  // in their place, the next of the step's R. They are granted before groups of later steps.
  void Refill(LearnerStep step, uint64_t count);

  // Grants the lowest pending group to a worker with the weights of `weights_step` committed steps,
  // or nothing if none is pending or the bound is reached.
  std::optional<LeaseGrant> Acquire(const std::string& worker, LearnerStep weights_step);

  // Grants the longest running straggler that had no second lease yet to a worker that holds
  // nothing and whose weights keep the group within the staleness budget.
  std::optional<LeaseGrant> Speculate(const std::string& worker, LearnerStep weights_step);

  // Extends a live lease of this worker to now + lease_time. False if it no longer lives.
  bool Renew(const std::string& worker, LeaseId lease);

  // Takes the result of a lease. `superseded` is set to the group's other lease if that ends here.
  AcceptOutcome Accept(GroupId group, LeaseId lease,
                       std::optional<LeaseGrant>* superseded = nullptr);

  // The holder gives up: the group becomes pending after a back-off, unless its other lease lives.
  // Unknown leases are ignored. kUnavailable, naming the group and `reason`, once a group has
  // failed failures_max times.
  absl::Status Fail(LeaseId lease, const std::string& reason);

  // The worker is gone: its leases end in `grace` at the latest, unless renewed before.
  void Depart(const std::string& worker, absl::Duration grace);

  // Ends overdue leases; groups without another one become pending. Returns the leases lost.
  std::vector<LeaseGrant> Expire();

  // Forgets the groups of a finished step. Requires that all are accepted. The last two steps are
  // remembered, so that a lost acknowledgement may be retried.
  void Commit(LearnerStep step);

  const LeaseBook& book() const { return book_; }
  // A live lease; null if it is not one.
  const LeaseGrant* Find(LeaseId lease) const;
  uint64_t accepted() const { return book_.accepted; }
  uint64_t running() const { return book_.running.size(); }  // Groups, not leases.
  uint64_t pending() const { return book_.pending.size() + book_.cooling.size(); }
  uint64_t RunningOf(const std::string& worker) const;  // Leases.
  uint64_t failures(GroupId group) const;
  LearnerStep StepOf(GroupId group) const { return LearnerStep(group.value / stride()); }

 private:
  using LiveLease = std::map<uint64_t, LeaseBook::Live>::iterator;

  // Ids of a step: U groups, then room for R.
  uint64_t stride() const { return options_.groups_per_step + options_.refill_max; }
  bool Admits(LearnerStep weights_step) const;
  void WarmUp();
  void Add(LearnerStep step, uint64_t count);
  LeaseGrant Grant(uint64_t group, const std::string& worker, bool speculative);
  void MoveDeadline(LiveLease live, absl::Duration deadline);
  LeaseGrant End(LiveLease live);
  bool Release(LiveLease live);

  const Options options_;
  const Clock& clock_;
  LeaseBook book_;
  GroupTimes times_;
};

}  // namespace oxbow::learner
