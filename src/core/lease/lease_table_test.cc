// SPDX-License-Identifier: Apache-2.0
#include "core/lease/lease_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/philox.h"

namespace oxbow::lease {
namespace {

LeaseTable::Options Spec(uint64_t groups, uint64_t staleness) {
  return {.epoch = Epoch(3),
          .groups_per_step = groups,
          .staleness_max = staleness,
          .lease_time = absl::Seconds(30)};
}

// Promise: Staleness is bounded. No fresh sample is trained more than `off_policy.staleness_max`
// steps after its weights. A budget that would deadlock is refused before anything starts.
TEST(LeaseTableTest, BoundAdmitsExactlyTheStalenessBudget) {
  FakeClock clock;
  LeaseTable table(Spec(4, 1), clock);
  for (uint64_t step = 0; step < 5; ++step) table.Plan(LearnerStep(step));
  std::vector<uint64_t> granted;
  while (const auto grant = table.Acquire("w", LearnerStep(0)))
    granted.push_back(grant->group.value);
  EXPECT_EQ(granted, (std::vector<uint64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_TRUE(table.Acquire("w", LearnerStep(1)).has_value())
      << "newer weights admit the next step";
}

std::vector<LeaseGrant> AcceptAll(LeaseTable& table, LearnerStep weights_step) {
  std::vector<LeaseGrant> grants;
  while (const auto grant = table.Acquire("w", weights_step)) {
    grants.push_back(*grant);
    EXPECT_EQ(table.Accept(grant->group, grant->id), AcceptOutcome::kAccepted);
  }
  return grants;
}

// With old weights the bound admits only groups of the step itself. A refill gets the room of the
// group that it replaces, and no group of a later step may take it.
// Promise: Dynamic sampling changes no promise.
TEST(LeaseTableTest, RefillsComeBeforeLaterStepsWithinTheStalenessBudget) {
  FakeClock clock;
  LeaseTable::Options options = Spec(4, 1);
  options.dynamic_sampling_max = 3;
  LeaseTable table(options, clock);
  for (uint64_t step = 0; step < 3; ++step) table.Plan(LearnerStep(step));
  std::vector<uint64_t> groups;
  for (const LeaseGrant& grant : AcceptAll(table, LearnerStep(0)))
    groups.push_back(grant.group.value);
  EXPECT_EQ(groups, (std::vector<uint64_t>{0, 1, 2, 3, 7, 8, 9, 10})) << "ids leave room for three";
  table.Refill(LearnerStep(0), 2);
  EXPECT_EQ(table.state().accepted, 6u);
  const std::vector<LeaseGrant> refills = AcceptAll(table, LearnerStep(0));
  ASSERT_EQ(refills.size(), 2u) << "as much as was replaced";
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(refills[i].group, GroupId(4 + i));
    EXPECT_EQ(refills[i].step, LearnerStep(0));
    EXPECT_EQ(table.Accept(refills[i].group, refills[i].id), AcceptOutcome::kDuplicate);
  }
  table.Refill(LearnerStep(0), 1);
  const auto last = table.Acquire("w", LearnerStep(0));
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->group, GroupId(6));
  clock.Advance(absl::Seconds(31));
  EXPECT_EQ(table.Expire().size(), 1u);
  EXPECT_EQ(AcceptAll(table, LearnerStep(0)).size(), 1u) << "made again, once";
  table.Commit(LearnerStep(0));
  table.Commit(LearnerStep(1));
  EXPECT_EQ(AcceptAll(table, LearnerStep(2)).front().group, GroupId(14));
}

TEST(LeaseTableDeathTest, MoreRefillsThanThereAreIdsFor) {
  FakeClock clock;
  LeaseTable::Options options = Spec(4, 0);
  options.dynamic_sampling_max = 1;
  LeaseTable table(options, clock);
  table.Plan(LearnerStep(0));
  AcceptAll(table, LearnerStep(0));
  table.Refill(LearnerStep(0), 1);
  EXPECT_DEATH(table.Refill(LearnerStep(0), 1), "groups of step");
}

// Promise: Each group is trained once.
TEST(LeaseTableTest, LateResultOfAnExpiredLeaseIsFencedAndItsSuccessorAccepted) {
  FakeClock clock;
  LeaseTable table(Spec(1, 0), clock);
  table.Plan(LearnerStep(0));
  const auto first = table.Acquire("a", LearnerStep(0));
  clock.Advance(absl::Seconds(31));
  EXPECT_EQ(table.Accept(first->group, first->id), AcceptOutcome::kFenced) << "before Expire runs";
  ASSERT_EQ(table.Expire().size(), 1u);
  const auto second = table.Acquire("b", LearnerStep(0));
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->group, first->group);
  EXPECT_EQ(second->attempt, 2u);
  EXPECT_FALSE(table.Renew("a", first->id));
  EXPECT_EQ(table.Accept(first->group, first->id), AcceptOutcome::kFenced);
  EXPECT_EQ(table.Accept(second->group, second->id), AcceptOutcome::kAccepted);
  EXPECT_EQ(table.Accept(second->group, second->id), AcceptOutcome::kDuplicate);
  EXPECT_EQ(table.Accept(first->group, first->id), AcceptOutcome::kFenced);
  EXPECT_EQ(table.state().accepted, 1u);
}

// A restarted learner plans the same groups again. Leases that it granted before must not count.
// Promise: Calls may be repeated.
TEST(LeaseTableTest, LeasesOfAnotherEpochMeanNothing) {
  FakeClock clock;
  LeaseTable before(Spec(1, 0), clock);
  LeaseTable::Options next = Spec(1, 0);
  next.epoch = Epoch(4);
  LeaseTable after(next, clock);
  before.Plan(LearnerStep(0));
  after.Plan(LearnerStep(0));
  const auto old = before.Acquire("a", LearnerStep(0));
  const auto current = after.Acquire("a", LearnerStep(0));
  ASSERT_EQ(old->group, current->group);
  EXPECT_EQ(after.Accept(old->group, old->id), AcceptOutcome::kFenced);
  EXPECT_FALSE(after.Renew("a", old->id));
  EXPECT_EQ(after.Accept(current->group, current->id), AcceptOutcome::kAccepted);
}

TEST(LeaseTableTest, RenewalKeepsALeaseAliveForItsHolderOnly) {
  FakeClock clock;
  LeaseTable table(Spec(1, 0), clock);
  table.Plan(LearnerStep(0));
  const auto grant = table.Acquire("a", LearnerStep(0));
  for (int i = 0; i < 5; ++i) {
    clock.Advance(absl::Seconds(20));
    EXPECT_FALSE(table.Renew("b", grant->id));
    EXPECT_TRUE(table.Renew("a", grant->id));
  }
  EXPECT_TRUE(table.Expire().empty());
}

// Renews as often as a worker does until the lease ends; returns its age then.
absl::Duration LifeOf(LeaseTable& table, FakeClock& clock, const LeaseGrant& grant) {
  const absl::Duration start = clock.Now();
  while (table.Expire().empty() && clock.Now() - start < absl::Hours(24)) {
    table.Renew(grant.worker, grant.id);
    clock.Advance(absl::Seconds(1));
  }
  return clock.Now() - start;
}

TEST(LeaseTableTest, TimeInWhichAWorkerWaitsForRewardsIsNoAge) {
  FakeClock clock;
  LeaseTable::Options options = Spec(4, 0);
  options.ages = {.factor = 8, .floor = 4, .samples_min = 1};
  LeaseTable table(options, clock);
  table.Plan(LearnerStep(0));
  const auto first = table.Acquire("a", LearnerStep(0));
  clock.Advance(absl::Seconds(1));
  ASSERT_EQ(table.Accept(first->group, first->id), AcceptOutcome::kAccepted);
  const LeaseGrant held = *table.Acquire("a", LearnerStep(0));
  for (int i = 0; i < 100; ++i) {
    clock.Advance(options.lease_time / 2);
    ASSERT_TRUE(table.Renew("a", held.id, /*waits=*/true)) << i;
  }
  const absl::Duration life = LifeOf(table, clock, held);
  EXPECT_GE(life, 3 * options.lease_time) << "all of its time is left after the wait";
  EXPECT_LE(life, 5 * options.lease_time);
}

// Promise: A stalled worker delays nobody.
TEST(LeaseTableTest, ALeaseThatIsRenewedForEverEndsAtItsMaximumAgeWhichDoublesWithEachAttempt) {
  FakeClock clock;
  LeaseTable::Options options = Spec(20, 0);
  options.ages = {.factor = 8, .floor = 4, .doublings_max = 2, .samples_min = 3};
  LeaseTable table(options, clock);
  table.Plan(LearnerStep(0));
  const auto finish = [&](absl::Duration took) {
    const auto grant = table.Acquire("good", LearnerStep(0));
    clock.Advance(took);
    ASSERT_EQ(table.Accept(grant->group, grant->id), AcceptOutcome::kAccepted);
  };
  const auto early = table.Acquire("hangs", LearnerStep(0));
  EXPECT_EQ(LifeOf(table, clock, *early), absl::Hours(24)) << "nothing is known of groups";
  for (const int seconds : {5, 5, 20}) {
    finish(absl::Seconds(seconds));
    EXPECT_TRUE(table.Renew("hangs", early->id));
  }
  clock.Advance(absl::Seconds(11));
  EXPECT_EQ(table.Expire().size(), 1u) << "the last renewal came after its maximum age";
  std::vector<absl::Duration> lives;
  for (int attempt = 2; attempt <= 5; ++attempt) {
    lives.push_back(LifeOf(table, clock, *table.Acquire("hangs", LearnerStep(0))));
  }
  EXPECT_EQ(lives, (std::vector<absl::Duration>{absl::Minutes(4), absl::Minutes(8),
                                                absl::Minutes(8), absl::Minutes(8)}))
      << "at least four lease times, doubled once and twice";
  for (int i = 0; i < 3; ++i) finish(absl::Seconds(25));
  const auto slow = table.Acquire("hangs", LearnerStep(0));
  EXPECT_EQ(LifeOf(table, clock, *slow), 8 * absl::Seconds(25)) << "eight times the median";
}

TEST(LeaseTableTest, DepartedWorkerKeepsItsLeasesForTheGraceUnlessItRenews) {
  FakeClock clock;
  LeaseTable table(Spec(2, 0), clock);
  table.Plan(LearnerStep(0));
  const auto kept = table.Acquire("a", LearnerStep(0));
  const auto lost = table.Acquire("a", LearnerStep(0));
  table.Depart("a", absl::Seconds(3));
  EXPECT_TRUE(table.Renew("a", kept->id));
  clock.Advance(absl::Seconds(3));
  const auto expired = table.Expire();
  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0].id, lost->id);
}

TEST(LeaseTableTest, FailuresBackOffAndSurfaceAfterTheLimit) {
  FakeClock clock;
  LeaseTable::Options options = Spec(1, 0);
  options.failures_max = 3;
  LeaseTable table(options, clock);
  table.Plan(LearnerStep(0));
  for (int failure = 1; failure <= 3; ++failure) {
    const auto grant = table.Acquire("a", LearnerStep(0));
    ASSERT_TRUE(grant.has_value());
    const absl::Status status = table.Fail(grant->id, "reward: no replica");
    EXPECT_EQ(status.ok(), failure < 3);
    EXPECT_TRUE(table.Fail(grant->id, "again").ok()) << "an ended lease fails once";
    EXPECT_FALSE(table.Acquire("a", LearnerStep(0)).has_value()) << "backs off";
    clock.Advance(absl::Seconds(10));
  }
  EXPECT_TRUE(table.Acquire("a", LearnerStep(0)).has_value()) << "no group is lost";
}

TEST(LeaseTableTest, ResumedRunCountsEarlierGroupsAsAccepted) {
  FakeClock clock;
  LeaseTable::Options options = Spec(4, 0);
  options.first_step = LearnerStep(25);
  LeaseTable table(options, clock);
  table.Plan(LearnerStep(25));
  EXPECT_FALSE(table.Acquire("w", LearnerStep(24)).has_value());
  EXPECT_EQ(table.Acquire("w", LearnerStep(25))->group, GroupId(100));
}

LeaseTable::Options Helpful(uint64_t groups, uint64_t staleness) {
  LeaseTable::Options options = Spec(groups, staleness);
  options.stragglers = {.quantile = 0.5, .factor = 1.5, .samples_min = 2};
  return options;
}

// Groups 0 and 1 of step 0 take 10 s each, so that 15 s make a straggler of group 2.
LeaseTable WithAStraggler(FakeClock& clock, std::optional<LeaseGrant>& slow) {
  LeaseTable table(Helpful(4, 0), clock);
  table.Plan(LearnerStep(0));
  const auto first = table.Acquire("a", LearnerStep(0));
  const auto second = table.Acquire("b", LearnerStep(0));
  clock.Advance(absl::Seconds(10));
  EXPECT_EQ(table.Accept(first->group, first->id), AcceptOutcome::kAccepted);
  EXPECT_EQ(table.Accept(second->group, second->id), AcceptOutcome::kAccepted);
  slow = table.Acquire("a", LearnerStep(0));
  return table;
}

// Promise: A stalled worker delays nobody.
TEST(LeaseTableTest, StragglerIsLeasedOnceMoreToAnIdleWorkerAndTheFirstResultWins) {
  for (const bool helper_is_first : {false, true}) {
    FakeClock clock;
    std::optional<LeaseGrant> slow;
    LeaseTable table = WithAStraggler(clock, slow);
    clock.Advance(absl::Seconds(14));
    EXPECT_FALSE(table.Speculate("b", LearnerStep(0)).has_value()) << "too early";
    clock.Advance(absl::Seconds(1));
    EXPECT_FALSE(table.Speculate("a", LearnerStep(0)).has_value()) << "holds it";
    const auto helper = table.Speculate("b", LearnerStep(0));
    ASSERT_TRUE(helper.has_value());
    EXPECT_EQ(helper->group, slow->group);
    EXPECT_TRUE(helper->speculative);
    EXPECT_FALSE(table.Speculate("c", LearnerStep(0)).has_value()) << "one extra lease is enough";
    EXPECT_EQ(table.running(), 1u) << "a group counts once against the staleness budget";
    const LeaseGrant winner = helper_is_first ? *helper : *slow;
    const LeaseGrant loser = helper_is_first ? *slow : *helper;
    std::optional<LeaseGrant> superseded;
    EXPECT_EQ(table.Accept(winner.group, winner.id, &superseded), AcceptOutcome::kAccepted);
    ASSERT_TRUE(superseded.has_value());
    EXPECT_EQ(superseded->id, loser.id);
    EXPECT_EQ(table.Accept(loser.group, loser.id), AcceptOutcome::kSuperseded);
    EXPECT_EQ(table.Accept(winner.group, winner.id), AcceptOutcome::kDuplicate);
    EXPECT_TRUE(table.Fail(loser.id, "cancelled").ok());
    EXPECT_EQ(table.failures(loser.group), 0u) << "superseded is not failed";
    EXPECT_FALSE(table.Renew(loser.worker, loser.id));
    EXPECT_EQ(table.state().accepted, 3u);
    EXPECT_EQ(table.running(), 0u);
  }
}

TEST(LeaseTableTest, StragglerWhoseHolderDiesGoesOnWithItsSecondLease) {
  FakeClock clock;
  std::optional<LeaseGrant> slow;
  LeaseTable table = WithAStraggler(clock, slow);
  clock.Advance(absl::Seconds(20));
  const auto helper = table.Speculate("b", LearnerStep(0));
  ASSERT_TRUE(helper.has_value());
  clock.Advance(absl::Seconds(10));
  ASSERT_EQ(table.Expire().size(), 1u);
  EXPECT_EQ(table.Acquire("c", LearnerStep(0))->group, GroupId(3)) << "group 2 is not pending";
  EXPECT_EQ(table.Accept(slow->group, slow->id), AcceptOutcome::kFenced);
  EXPECT_EQ(table.Accept(helper->group, helper->id), AcceptOutcome::kAccepted);
}

TEST(LeaseTableTest, NobodyHelpsWithoutEnoughTimesWithOldWeightsOrWhenItIsOff) {
  FakeClock clock;
  std::optional<LeaseGrant> slow;
  LeaseTable off(Spec(1, 0), clock);
  off.Plan(LearnerStep(0));
  ASSERT_TRUE(off.Acquire("a", LearnerStep(0)).has_value());
  LeaseTable::Options options = Helpful(1, 0);
  options.first_step = LearnerStep(5);
  options.stragglers.samples_min = 0;
  LeaseTable table(options, clock);
  table.Plan(LearnerStep(5));
  ASSERT_TRUE(table.Acquire("a", LearnerStep(5)).has_value());
  clock.Advance(absl::Seconds(25));
  EXPECT_FALSE(off.Speculate("b", LearnerStep(0)).has_value());
  EXPECT_FALSE(table.Speculate("b", LearnerStep(4)).has_value()) << "would be too stale";
  EXPECT_TRUE(table.Speculate("b", LearnerStep(5)).has_value());
}

// Plays random events against a plain form of the rules: a list of all attempts.
class Reference {
 public:
  Reference(uint64_t seed, uint64_t groups, uint64_t staleness, uint64_t steps)
      : random_({.seed = seed}),
        groups_(groups),
        staleness_(staleness),
        steps_(steps),
        table_(Helpful(groups, staleness), clock_) {}

  void Run() {
    for (uint64_t s = 0; s <= staleness_ && s < steps_; ++s) table_.Plan(LearnerStep(s));
    for (int event = 0; committed_ < steps_ && event < 200'000; ++event) {
      PlayOne();
      CommitWhatIsComplete();
      ASSERT_EQ(table_.state().accepted, accepted_.size());
      ASSERT_LE(table_.state().accepted + table_.running(),
                (staleness_ + committed_ + 1) * groups_);
    }
    EXPECT_EQ(committed_, steps_) << "every group is accepted in the end";
    EXPECT_EQ(accepted_.size(), steps_ * groups_);
  }

  uint64_t superseded() const { return superseded_; }

 private:
  struct Attempt {
    LeaseGrant grant;
    absl::Duration deadline;
    bool over = false;        // Expired, failed, superseded or accepted.
    bool superseded = false;  // The group's other lease was first.
  };

  void PlayOne() {
    const std::string worker(1, static_cast<char>('a' + random_.NextBelow(3)));
    switch (random_.NextBelow(10)) {
      case 0:
      case 1:
      case 2:
        return Grant(worker);
      case 3:
      case 4:
      case 5:
        return Submit();
      case 6:
        return Renew();
      case 7:
        return Fail();
      case 8:
        clock_.Advance(absl::Seconds(random_.NextBelow(12)));
        return Expire();
      default:
        if (random_.NextBelow(4) == 0) return Depart(worker);
        return Speculate(worker);
    }
  }

  void Grant(const std::string& worker) {
    const uint64_t weights = committed_ - random_.NextBelow(std::min<uint64_t>(committed_, 2) + 1);
    const auto grant = table_.Acquire(worker, LearnerStep(weights));
    if (!grant.has_value()) return;
    const uint64_t group = grant->group.value;
    ASSERT_EQ(accepted_.count(group), 0u) << "granted after it was accepted";
    ASSERT_LE(group / groups_, weights + staleness_) << "beyond the staleness budget";
    for (const Attempt& attempt : attempts_) {
      ASSERT_TRUE(attempt.over || attempt.grant.group.value != group) << "two live leases";
      ASSERT_NE(attempt.grant.id, grant->id) << "lease id reused";
    }
    since_[group] = clock_.Now();
    attempts_.push_back({*grant, clock_.Now() + absl::Seconds(30)});
  }

  // Half of the recent groups took less than this.
  absl::Duration TypicalTime() const {
    std::vector<absl::Duration> times(
        times_.end() - std::min<std::ptrdiff_t>(64, std::ssize(times_)), times_.end());
    std::sort(times.begin(), times.end());
    return times[static_cast<size_t>(0.5 * static_cast<double>(times.size() - 1) + 0.5)];
  }

  void Speculate(const std::string& worker) {
    const uint64_t weights = committed_ - random_.NextBelow(std::min<uint64_t>(committed_, 2) + 1);
    const auto grant = table_.Speculate(worker, LearnerStep(weights));
    if (!grant.has_value()) return;
    const uint64_t group = grant->group.value;
    ASSERT_GE(times_.size(), 2u);
    ASSERT_GE(clock_.Now() - since_.at(group), 1.5 * TypicalTime()) << "no straggler";
    ASSERT_TRUE(helped_.insert(group).second) << "a second extra lease";
    ASSERT_LE(group / groups_, weights + staleness_) << "beyond the staleness budget";
    int beside = 0;
    for (const Attempt& attempt : attempts_) {
      if (attempt.over) continue;
      ASSERT_NE(attempt.grant.worker, worker) << "the helper was not idle";
      if (attempt.grant.group.value == group) ++beside;
    }
    ASSERT_EQ(beside, 1) << "a second lease of a group with one";
    attempts_.push_back({*grant, clock_.Now() + absl::Seconds(30)});
  }

  // Checks what the table says about the other lease of a group that was accepted.
  void Supersede(const LeaseGrant& winner, const std::optional<LeaseGrant>& told) {
    const Attempt* loser = nullptr;
    for (Attempt& attempt : attempts_) {
      if (attempt.over || attempt.grant.group != winner.group || attempt.grant.id == winner.id)
        continue;
      attempt.over = attempt.superseded = true;
      loser = &attempt;
    }
    ASSERT_EQ(told.has_value(), loser != nullptr);
    if (loser == nullptr) return;
    ASSERT_EQ(told->id, loser->grant.id);
    ++superseded_;
  }

  Attempt* AnyAttempt() {
    return attempts_.empty() ? nullptr : &attempts_[random_.NextBelow(attempts_.size())];
  }

  void Submit() {
    Attempt* attempt = AnyAttempt();
    if (attempt == nullptr) return;
    const uint64_t group = attempt->grant.group.value;
    std::optional<LeaseGrant> superseded;
    const AcceptOutcome outcome =
        table_.Accept(attempt->grant.group, attempt->grant.id, &superseded);
    const auto winner = accepted_.find(group);
    if (outcome == AcceptOutcome::kAccepted) {
      ASSERT_EQ(winner, accepted_.end()) << "accepted twice";
      ASSERT_FALSE(attempt->over);
      ASSERT_LT(clock_.Now(), attempt->deadline);
      accepted_[group] = attempt->grant.id;
      attempt->over = true;
      times_.push_back(clock_.Now() - since_.at(group));
      return Supersede(attempt->grant, superseded);
    }
    ASSERT_FALSE(superseded.has_value());
    if (outcome == AcceptOutcome::kDuplicate) {
      ASSERT_NE(winner, accepted_.end());
      ASSERT_EQ(winner->second, attempt->grant.id);
    } else if (outcome == AcceptOutcome::kSuperseded) {
      ASSERT_TRUE(attempt->superseded);
    } else {
      const bool live = !attempt->over && clock_.Now() < attempt->deadline;
      ASSERT_FALSE(live) << "a live lease was fenced";
      const bool remembered = group / groups_ + 1 >= committed_;
      ASSERT_FALSE(attempt->superseded && remembered) << "superseded, not fenced";
    }
  }

  void Renew() {
    Attempt* attempt = AnyAttempt();
    if (attempt == nullptr) return;
    const bool live = !attempt->over && clock_.Now() < attempt->deadline;
    ASSERT_EQ(table_.Renew(attempt->grant.worker, attempt->grant.id), live);
    if (live) attempt->deadline = clock_.Now() + absl::Seconds(30);
  }

  void Fail() {
    Attempt* attempt = AnyAttempt();
    if (attempt == nullptr || random_.NextBelow(4) != 0) return;
    (void)table_.Fail(attempt->grant.id, "test");  // Another test is about failures_max.
    attempt->over = true;
  }

  void Expire() {
    std::set<uint64_t> lost;
    for (const LeaseGrant& grant : table_.Expire()) lost.insert(grant.id.value);
    for (Attempt& attempt : attempts_) {
      const bool due = !attempt.over && attempt.deadline <= clock_.Now();
      ASSERT_EQ(lost.count(attempt.grant.id.value), due ? 1u : 0u);
      if (due) attempt.over = true;
    }
  }

  void Depart(const std::string& worker) {
    table_.Depart(worker, absl::Seconds(2));
    for (Attempt& attempt : attempts_) {
      if (attempt.grant.worker != worker) continue;
      attempt.deadline = std::min(attempt.deadline, clock_.Now() + absl::Seconds(2));
    }
  }

  void CommitWhatIsComplete() {
    const uint64_t begin = committed_ * groups_;
    for (uint64_t g = begin; g < begin + groups_; ++g) {
      if (accepted_.count(g) == 0) return;
    }
    table_.Commit(LearnerStep(committed_));
    ++committed_;
    if (committed_ + staleness_ < steps_) table_.Plan(LearnerStep(committed_ + staleness_));
    if (attempts_.size() > 400) attempts_.erase(attempts_.begin(), attempts_.begin() + 100);
  }

  RandomStream random_;
  const uint64_t groups_;
  const uint64_t staleness_;
  const uint64_t steps_;
  FakeClock clock_;
  LeaseTable table_;
  uint64_t committed_ = 0;
  std::map<uint64_t, LeaseId> accepted_;
  std::vector<Attempt> attempts_;
  std::map<uint64_t, absl::Duration> since_;  // When a group was first leased.
  std::vector<absl::Duration> times_;         // How long accepted groups took.
  std::set<uint64_t> helped_;                 // Groups that had a second lease.
  uint64_t superseded_ = 0;
};

// Promise: Each group is trained once.
TEST(LeaseTableTest, RandomEventsAcceptEachGroupOnceWithinTheBudgetAndLoseNone) {
  uint64_t superseded = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Reference reference(seed, 1 + seed % 5, seed % 3, 12);
    reference.Run();
    if (::testing::Test::HasFatalFailure()) return;
    superseded += reference.superseded();
  }
  EXPECT_GT(superseded, 20u) << "races of two leases were not played";
}

}  // namespace
}  // namespace oxbow::lease
