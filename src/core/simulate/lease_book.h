// The coordinator's view of the groups in a simulated run: which are wanted, who produces each,
// which results count. The rules are those of the learner's lease table, and the admission
// inequality is the same function; what is added is what they cost.
//
//   granted = accepted + failed + expired + superseded + dropped + in flight
//
// A group may have two leases: a late one and a second one given to an idle worker. The first
// result wins, the other lease is superseded.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "core/replay/admission.h"

namespace oxbow::simulate {

inline constexpr uint32_t kNoLease = 0xffffffffu;

enum class LeaseEnd : uint8_t { kNone, kAccepted, kFailed, kExpired, kSuperseded, kDropped };

struct Lease {
  enum class Stage : uint8_t { kOnTheWay, kWaiting, kSampling, kDelivering, kDelivered };

  uint64_t group = 0;
  double granted_at = 0;
  double work_s = 0;          // Sampling time spent on it.
  uint64_t sampled_step = 0;  // L_V of the weights it was sampled with.
  uint32_t worker = 0;
  uint32_t generation = 0;  // Of this place in memory; places are used again.
  Stage stage = Stage::kOnTheWay;
  LeaseEnd end = LeaseEnd::kNone;
  bool held = false;  // The worker still knows it.
  bool live() const { return end == LeaseEnd::kNone; }
};

struct LeaseCounts {
  uint64_t granted = 0;
  uint64_t second = 0;  // Of these: of a group that another worker was late with.
  uint64_t accepted = 0;
  uint64_t failed = 0;
  uint64_t expired = 0;
  uint64_t superseded = 0;
  uint64_t dropped = 0;  // By a restart of the learner.
  uint64_t in_flight = 0;
};

class LeaseBook {
 public:
  LeaseBook(replay::AdmissionRule rule, double speculation_quantile);

  // Adds the groups of the next step.
  void PlanStep();

  // Whether a group is pending that weights of `weights_step` are admitted for.
  bool CanGrant(uint64_t weights_step) const;
  // Leases the lowest pending group. Requires CanGrant.
  uint32_t Grant(uint32_t worker, uint64_t weights_step, double now);

  // A second lease of the group under way for longest, if it is late, no second one is out, another
  // worker has it and `weights_step` serves it.
  std::optional<uint32_t> GrantSecond(uint32_t worker, uint64_t weights_step, double now);
  // When the group under way for longest will be late; nothing without one, or while too few
  // groups have been accepted to know what is late.
  std::optional<double> LateAt();

  // The result of a lease is here. True if it counts; `other` is then the group's second lease,
  // now superseded, or kNoLease.
  bool Accept(uint32_t lease, double now, uint32_t& other);
  void Expire(uint32_t lease);  // The group is pending, unless another lease lives.
  bool Fail(uint32_t lease);    // True: the group has to cool down; call Warm for it.
  void Warm(uint64_t group);
  uint32_t failures(uint64_t group) const { return GroupAt(group).failures; }

  // Whether step `step` has all its groups.
  bool IsComplete(uint64_t step) const;
  // What the accepted groups of a step cost, and how stale each was.
  template <class Visitor>  // (double work_s, uint64_t staleness)
  void VisitStep(uint64_t step, Visitor visit) const {
    for (uint64_t g = step * rule_.groups_per_step; g < (step + 1) * rule_.groups_per_step; ++g) {
      if (g >= first_ + groups_.size()) return;
      const Group& group = GroupAt(g);
      if (group.accepted) visit(group.work_s, group.staleness);
    }
  }
  void ForgetBefore(uint64_t step);
  // The learner starts again after `step` steps: all leases end, all later groups are unplanned.
  void Restart(uint64_t step);

  void Drop(uint32_t lease);  // The worker has forgotten it.
  Lease& at(uint32_t lease) { return places_[lease]; }
  const Lease& at(uint32_t lease) const { return places_[lease]; }
  uint64_t running() const { return running_; }  // Groups with a live lease.
  uint64_t planned_steps() const { return planned_ / rule_.groups_per_step; }
  uint32_t attempts(uint64_t group) const { return GroupAt(group).attempts; }
  LeaseCounts counts() const;

 private:
  struct Group {
    std::array<uint32_t, 2> leases{kNoLease, kNoLease};  // Live ones.
    uint32_t attempts = 0;
    uint32_t failures = 0;
    bool accepted = false;
    bool cooling = false;
    double work_s = 0;
    uint64_t staleness = 0;
  };
  struct Started {
    uint32_t lease;
    uint32_t generation;
  };

  Group& GroupAt(uint64_t group) { return groups_[group - first_]; }
  const Group& GroupAt(uint64_t group) const { return groups_[group - first_]; }
  uint32_t NewLease(uint64_t group, uint32_t worker, double now);
  void End(uint32_t lease, LeaseEnd end);
  void Reuse(uint32_t lease);
  bool IsOut(const Group& group) const;
  std::optional<Started> Oldest();

  const replay::AdmissionRule rule_;
  const double quantile_;
  std::vector<Lease> places_;
  std::vector<uint32_t> free_places_;
  std::deque<Group> groups_;  // From group first_.
  uint64_t first_ = 0;
  uint64_t planned_ = 0;      // Groups planned so far.
  uint64_t next_ = 0;         // The lowest group that was never leased.
  std::set<uint64_t> again_;  // Pending ones below it.
  uint64_t accepted_ = 0;     // In committed history and the steps under way.
  uint64_t running_ = 0;
  uint64_t cooling_ = 0;
  std::vector<uint64_t> accepted_by_step_;
  std::deque<Started> started_;    // First leases by time; ended ones leave when they are in front.
  std::vector<double> durations_;  // Of the last accepted leases.
  uint64_t durations_seen_ = 0;
  double late_after_s_ = 0;
  uint64_t late_known_at_ = 0;
  LeaseCounts counts_;
};

}  // namespace oxbow::simulate
