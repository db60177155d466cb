#include "services/learner/lease_table.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "base/philox.h"

namespace oxbow::learner {
namespace {

LeaseTable::Options Spec(uint64_t groups, uint64_t staleness) {
  return {.epoch = Epoch(3),
          .groups_per_step = groups,
          .staleness_max = staleness,
          .lease_time = absl::Seconds(30)};
}

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
  EXPECT_EQ(table.accepted(), 1u);
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

// Plays random events against the rules written out plainly: a map from group to its state.
class Reference {
 public:
  Reference(uint64_t seed, uint64_t groups, uint64_t staleness, uint64_t steps)
      : random_({.seed = seed}),
        groups_(groups),
        staleness_(staleness),
        steps_(steps),
        table_(Spec(groups, staleness), clock_) {}

  void Run() {
    for (uint64_t s = 0; s <= staleness_ && s < steps_; ++s) table_.Plan(LearnerStep(s));
    for (int event = 0; committed_ < steps_ && event < 200'000; ++event) {
      PlayOne();
      CommitWhatIsComplete();
      ASSERT_EQ(table_.accepted(), accepted_.size());
      ASSERT_LE(table_.accepted() + table_.running(), (staleness_ + committed_ + 1) * groups_);
    }
    EXPECT_EQ(committed_, steps_) << "every group is accepted in the end";
    EXPECT_EQ(accepted_.size(), steps_ * groups_);
  }

 private:
  struct Attempt {
    LeaseGrant grant;
    absl::Duration deadline;
    bool over = false;  // Expired, failed or superseded.
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
        if (random_.NextBelow(4) == 0) Depart(worker);
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
    attempts_.push_back({*grant, clock_.Now() + absl::Seconds(30)});
  }

  Attempt* AnyAttempt() {
    return attempts_.empty() ? nullptr : &attempts_[random_.NextBelow(attempts_.size())];
  }

  void Submit() {
    Attempt* attempt = AnyAttempt();
    if (attempt == nullptr) return;
    const uint64_t group = attempt->grant.group.value;
    const AcceptOutcome outcome = table_.Accept(attempt->grant.group, attempt->grant.id);
    const auto winner = accepted_.find(group);
    if (outcome == AcceptOutcome::kAccepted) {
      ASSERT_EQ(winner, accepted_.end()) << "accepted twice";
      ASSERT_FALSE(attempt->over);
      ASSERT_LT(clock_.Now(), attempt->deadline);
      accepted_[group] = attempt->grant.id;
      attempt->over = true;
    } else if (outcome == AcceptOutcome::kDuplicate) {
      ASSERT_NE(winner, accepted_.end());
      ASSERT_EQ(winner->second, attempt->grant.id);
    } else {
      const bool live = !attempt->over && clock_.Now() < attempt->deadline;
      ASSERT_FALSE(live) << "a live lease was fenced";
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
    (void)table_.Fail(attempt->grant.id, "test");  // Its limit has a test of its own.
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
};

TEST(LeaseTableTest, RandomEventsAcceptEachGroupOnceWithinTheBudgetAndLoseNone) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Reference(seed, 1 + seed % 5, seed % 3, 12).Run();
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace oxbow::learner
