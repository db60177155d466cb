// SPDX-License-Identifier: Apache-2.0
#include "core/lease/worker_book.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/philox.h"
#include "core/lease/lease_table.h"

namespace oxbow::lease {
namespace {

// Promise: One bad worker ends no run. A worker whose leases fail one after another gets none after
// three of them, then one as a trial after 30 seconds, doubled up to 10 minutes, until one
// succeeds. Held-out pictures are leased by the same rule. A group that a worker failed goes to
// another one. It ends the run only after eight failures, by three workers that have made groups
// before, or by all such workers if there are fewer. Beside seven healthy workers one that fails at
// once gets less than 5 % of the leases. Where all are bad, the run waits for
// `services.patience_minutes`. A service that is away makes no worker bad, nor do conditioning or
// weights that cannot be fetched. A worker or reward server whose GPU answers with an error ends
// with exit code 10, and a new process takes the GPU; where the build has no code for the GPU it
// ends with 2. Callers of that reward server ask another one, and blame no picture.

TEST(WorkerBookTest, ABadWorkerRestsTwiceAsLongEachTimeAndGetsOneLeaseAsATrial) {
  FakeClock clock;
  WorkerBook book({}, clock);
  book.Join("a");
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(book.Failed("a", "torch"));
    EXPECT_TRUE(book.Admits("a", 3)) << "a failure or two happen to each";
  }
  absl::Duration rest = absl::Seconds(30);
  for (int trial = 0; trial < 8; ++trial) {
    EXPECT_TRUE(book.Failed("a", "torch"));
    clock.Advance(rest - absl::Milliseconds(1));
    EXPECT_FALSE(book.Admits("a", 0)) << rest;
    clock.Advance(absl::Milliseconds(1));
    EXPECT_TRUE(book.Admits("a", 0)) << rest;
    EXPECT_FALSE(book.Admits("a", 1)) << "one at a time";
    rest = std::min(2 * rest, absl::Minutes(10));
  }
  book.Leave("a");
  book.Join("a");
  EXPECT_TRUE(book.Bad("a")) << "who comes back is not another one";
  book.Succeeded("a");
  EXPECT_TRUE(book.Admits("a", 5));
  EXPECT_EQ(book.Find("a")->failures, 0u);
}

TEST(WorkerBookTest, AServiceThatIsAwayMakesNoWorkerBadButAHeadlongOneIsSlowedDown) {
  FakeClock clock;
  WorkerBook book({}, clock);
  book.Join("a");
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(book.Failed("a", "cannot read the head", Blame::kElsewhere));
    EXPECT_FALSE(book.Admits("a", 0));
    clock.Advance(absl::Seconds(1));
    EXPECT_TRUE(book.Admits("a", 0));
    EXPECT_FALSE(book.Admits("a", 1));
  }
  EXPECT_FALSE(book.Bad("a"));
}

TEST(WorkerBookTest, KnowsSinceWhenNobodyIsWell) {
  FakeClock clock;
  WorkerBook book({}, clock);
  book.Look();
  EXPECT_FALSE(book.all_bad_since().has_value()) << "nobody is there";
  for (const char* worker : {"a", "b"}) {
    book.Join(worker);
    book.Look();
    EXPECT_FALSE(book.all_bad_since().has_value());
    for (int i = 0; i < 3; ++i) book.Failed(worker, "torch");
    clock.Advance(absl::Seconds(1));
  }
  book.Look();
  EXPECT_EQ(book.all_bad_since(), absl::Seconds(2));
  EXPECT_EQ(book.last_bad(), "b");
  clock.Advance(absl::Hours(1));
  book.Look();
  EXPECT_EQ(book.all_bad_since(), absl::Seconds(2)) << "trials that fail change nothing";
  book.Succeeded("a");
  book.Look();
  EXPECT_FALSE(book.all_bad_since().has_value());
}

TEST(WorkerBookTest, AFailedGroupGoesToAnotherWorkerAndBackOnlyWhereNoneIs) {
  FakeClock clock;
  WorkerBook book({}, clock);
  LeaseTable table({.epoch = Epoch(3), .groups_per_step = 1}, clock, &book);
  for (const char* worker : {"a", "b"}) {
    book.Join(worker);
    book.Asks(worker, true);
  }
  table.Plan(LearnerStep(0));
  const auto fail = [&](const std::string& worker) {
    clock.Advance(absl::Seconds(10));
    const auto grant = table.Acquire(worker, LearnerStep(0));
    EXPECT_TRUE(grant.has_value()) << worker;
    book.Failed(worker, "torch");
    return table.Fail(grant->id, "torch");
  };
  EXPECT_TRUE(fail("a").ok());
  clock.Advance(absl::Seconds(10));
  bool kept = false;
  EXPECT_FALSE(table.Acquire("a", LearnerStep(0), &kept).has_value());
  EXPECT_TRUE(kept);
  book.Asks("b", false);
  EXPECT_TRUE(fail("a").ok()) << "b has died, or takes nothing";
  book.Asks("b", true);
  book.Succeeded("a");
  clock.Advance(absl::Minutes(4));
  EXPECT_FALSE(table.Acquire("a", LearnerStep(0)).has_value());
  clock.Advance(absl::Minutes(1));
  EXPECT_TRUE(fail("a").ok()) << "for five minutes b did not come for it";
  EXPECT_TRUE(fail("b").ok());
  EXPECT_TRUE(fail("a").ok()) << "both have failed it";
}

// Workers that are asked as often as they like, in fake time.
struct Fleet {
  Fleet(uint32_t failures_max, int healthy)
      : book({.failures_max = failures_max}, clock),
        table({.epoch = Epoch(1), .groups_per_step = 8, .staleness_max = 1}, clock, &book) {
    table.Plan(LearnerStep(0));
    table.Plan(LearnerStep(1));
    for (int i = 0; i < healthy; ++i) workers.push_back({.name = "gpu-" + std::to_string(i)});
    for (const Worker& worker : workers) book.Join(worker.name);
    book.Join("bad");
    book.Asks("bad", true);
  }

  struct Worker {
    std::string name;
    std::optional<LeaseGrant> held;
    absl::Duration until;
  };

  // The bad one asks first, and for eight at once.
  absl::Status Turn() {
    for (int i = 0; i < 8 && book.Admits("bad", table.RunningOf("bad")); ++i) {
      const auto grant = table.Acquire("bad", LearnerStep(committed));
      if (!grant.has_value()) break;
      ++bad_leases;
      book.Failed("bad", "CUDA error");
      if (const absl::Status status = table.Fail(grant->id, "CUDA error"); !status.ok())
        return status;
    }
    for (Worker& worker : workers) Turn(worker);
    while (accepted.count(committed) != 0 && accepted[committed] == 8) {
      table.Commit(LearnerStep(committed++));
      table.Plan(LearnerStep(committed + 1));
    }
    clock.Advance(absl::Milliseconds(100));
    return absl::OkStatus();
  }

  void Turn(Worker& worker) {
    if (worker.held.has_value()) {
      (void)table.Renew(worker.name, worker.held->id);
      if (clock.Now() < worker.until) return;
      EXPECT_EQ(table.Accept(worker.held->group, worker.held->id), AcceptOutcome::kAccepted);
      book.Succeeded(worker.name);
      ++accepted[worker.held->step.value];
      worker.held.reset();
    }
    worker.held = table.Acquire(worker.name, LearnerStep(committed));
    book.Asks(worker.name, !worker.held.has_value());
    if (!worker.held.has_value()) return;
    ++good_leases;
    worker.until = clock.Now() + absl::Milliseconds(8000 + random.NextBelow(4000));
  }

  double bad_share() const {
    return static_cast<double>(bad_leases) / static_cast<double>(bad_leases + good_leases);
  }

  FakeClock clock;
  WorkerBook book;
  LeaseTable table;
  std::vector<Worker> workers;
  RandomStream random{{.seed = 7}};
  std::map<uint64_t, int> accepted;  // By step.
  uint64_t committed = 0;
  uint64_t bad_leases = 0;
  uint64_t good_leases = 0;
};

TEST(WorkerBookTest, SevenHealthyWorkersFinishTheRunBesideOneThatFailsAtOnce) {
  Fleet fleet(3, 7);
  while (fleet.committed < 200) ASSERT_TRUE(fleet.Turn().ok()) << "step " << fleet.committed;
  EXPECT_LT(fleet.bad_share(), 0.05);
  EXPECT_GT(fleet.bad_leases, 5u) << "it is tried again";
  std::printf("the bad worker got %.2f %% of %d leases\n", 100 * fleet.bad_share(),
              static_cast<int>(fleet.bad_leases + fleet.good_leases));
}

TEST(WorkerBookTest, WithoutRestsTheWorkerThatFailsAtOnceGetsMostLeases) {
  Fleet fleet(1'000'000'000, 7);
  while (fleet.committed < 20 && fleet.Turn().ok()) {
  }
  EXPECT_GT(fleet.bad_share(), 0.25);
}

// A group that nobody can make is the group's fault, and is found to be within a minute.
TEST(WorkerBookTest, AGroupThatNobodyCanMakeEndsTheRunAfterThreeWorkers) {
  FakeClock clock;
  WorkerBook book({}, clock);
  LeaseTable table({.epoch = Epoch(1), .groups_per_step = 9, .staleness_max = 9}, clock, &book);
  for (uint64_t step = 0; step < 10; ++step) table.Plan(LearnerStep(step));
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  for (const std::string& name : names) {
    book.Join(name);
    book.Asks(name, true);
  }
  absl::Status status;
  int failures = 0;
  for (int turn = 0; status.ok() && turn < 400; ++turn) {
    const std::string& name = names[static_cast<size_t>(turn) % names.size()];
    const auto grant = table.Acquire(name, LearnerStep(0));
    if (grant.has_value() && grant->group == GroupId(0)) {
      book.Failed(name, "no");
      status = table.Fail(grant->id, "no");
      ++failures;
    } else if (grant.has_value()) {
      EXPECT_EQ(table.Accept(grant->group, grant->id), AcceptOutcome::kAccepted);
      book.Succeeded(name);
    }
    clock.Advance(absl::Milliseconds(600));
  }
  EXPECT_EQ(failures, 8);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

// As a worker does that loses its GPU, ends, and is started again under another name.
TEST(WorkerBookTest, WorkersThatNeverHadASuccessEndNoRunByAGroup) {
  FakeClock clock;
  WorkerBook book({}, clock);
  LeaseTable table({.epoch = Epoch(1), .groups_per_step = 1}, clock, &book);
  table.Plan(LearnerStep(0));
  book.Join("busy");
  book.Succeeded("busy");
  for (int i = 0; i < 16; ++i) {
    clock.Advance(absl::Seconds(10));
    const std::string name = "bad-" + std::to_string(i);
    book.Join(name);
    const auto grant = table.Acquire(name, LearnerStep(0));
    ASSERT_TRUE(grant.has_value());
    book.Failed(name, "CUDA error");
    EXPECT_TRUE(table.Fail(grant->id, "CUDA error").ok()) << i;
  }
}

}  // namespace
}  // namespace oxbow::lease
