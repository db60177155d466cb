// Which groups are wanted, who produces each, and which results still count. A pure state machine.
//
// Group g belongs to learner step g / U. A group is pending -> leased -> accepted; an expired,
// failed or abandoned lease makes it pending again under a new lease id, so a late result of the
// old attempt is told apart (fenced). A worker whose weights are those after L_V committed steps is
// granted a group only while
//
//   accepted + running < (S + L_V + 1) U        accepted: over the whole run
//
// The lowest pending group is granted, all below it are accepted or running, so its index is under
// the bound and its staleness g / U - L_V is at most S: nothing is produced that would be thrown
// away.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"

namespace oxbow::learner {

struct LeaseGrant {
  LeaseId id;
  GroupId group;
  LearnerStep step;
  uint32_t attempt = 0;  // 1 for the first.
  std::string worker;
};

enum class AcceptOutcome { kAccepted, kDuplicate, kFenced };

// Not thread-safe. Time comes from the clock alone.
class LeaseTable {
 public:
  struct Options {
    Epoch epoch;                   // Lease ids of different epochs differ.
    LearnerStep first_step;        // Steps committed before; their groups count as accepted.
    uint64_t groups_per_step = 1;  // U
    uint64_t staleness_max = 0;    // S
    absl::Duration lease_time = absl::Seconds(30);
    uint32_t failures_max = 8;  // Reported failures of one group before the run fails.
    absl::Duration backoff_first =
        absl::Seconds(1);  // Before a failed group is granted again; doubles.
    absl::Duration backoff_max = absl::Seconds(10);
  };

  LeaseTable(Options options, const Clock& clock);

  // Adds the U groups of the next step. Steps are planned in order, starting with first_step.
  void Plan(LearnerStep step);

  // Grants the lowest pending group to a worker with the weights of `weights_step` committed steps,
  // or nothing if none is pending or the bound is reached.
  std::optional<LeaseGrant> Acquire(const std::string& worker, LearnerStep weights_step);

  // Extends a live lease of this worker to now + lease_time. False if it no longer lives.
  bool Renew(const std::string& worker, LeaseId lease);

  // Takes the result of a lease. kDuplicate if this lease was accepted before, kFenced if it
  // expired, was superseded or is of no known group.
  AcceptOutcome Accept(GroupId group, LeaseId lease);

  // The holder gives up: the group becomes pending after a back-off. Unknown leases are ignored.
  // kUnavailable, naming the group and `reason`, once a group has failed failures_max times.
  absl::Status Fail(LeaseId lease, const std::string& reason);

  // The worker is gone: its leases end in `grace` at the latest, unless renewed before.
  void Depart(const std::string& worker, absl::Duration grace);

  // Makes groups of overdue leases pending. Returns the leases lost.
  std::vector<LeaseGrant> Expire();

  // Forgets the groups of a finished step. Requires that all are accepted. The last two steps are
  // remembered, so that a lost acknowledgement may be retried.
  void Commit(LearnerStep step);

  uint64_t accepted() const { return accepted_; }
  uint64_t running() const { return live_.size(); }
  uint64_t pending() const { return pending_.size() + cooling_.size(); }
  uint64_t RunningOf(const std::string& worker) const;
  uint64_t failures(GroupId group) const;
  LearnerStep StepOf(GroupId group) const {
    return LearnerStep(group.value / options_.groups_per_step);
  }

 private:
  struct Record {
    uint32_t attempt = 0;
    uint32_t failures = 0;
    bool accepted = false;
    LeaseId lease;  // The live or the accepted one; 0: none.
  };
  struct Live {
    LeaseGrant grant;
    absl::Duration deadline;
  };

  bool Admits(LearnerStep weights_step) const;
  void WarmUp();
  void Release(std::map<uint64_t, Live>::iterator live);

  const Options options_;
  const Clock& clock_;
  uint64_t lease_count_ = 0;
  uint64_t planned_;                    // Groups planned in the run so far: the next group id.
  uint64_t accepted_;                   // Groups accepted in the run so far.
  std::map<uint64_t, Record> records_;  // By group.
  std::set<uint64_t> pending_;          // Groups to grant.
  std::map<uint64_t, absl::Duration>
      cooling_;                    // Groups that failed, with the time they may be granted.
  std::map<uint64_t, Live> live_;  // By lease.
};

}  // namespace oxbow::learner
