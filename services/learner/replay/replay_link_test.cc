// SPDX-License-Identifier: Apache-2.0
// Commits, checkpoints and absences of the buffer. The oracle of an absence is a store that was
// never away.
#include "services/learner/replay/replay_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rpc/convert.h"
#include "run/prompt.h"
#include "services/learner/replay/replay_offer.h"
#include "tests/testing/linked_buffer.h"

namespace oxbow::learner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Step n offers entry 100 + n of prompt n % 3, sometimes better than what is there, and uses and
// drops what earlier steps left: an order other than 0, 1, 2 ... leaves another content.
ReplayLink::StepCommit CommitOf(uint64_t step) {
  ReplayLink::StepCommit commit{.step = LearnerStep(step)};
  commit.offers.push_back(Entry(100 + step, step % 3, step, static_cast<double>(step % 5)));
  if (step >= 2) commit.used.push_back(EntryId(100 + step - 2));
  if (step % 4 == 3) commit.evict.push_back(EntryId(100 + step - 1));
  return commit;
}

// Promise: Any one process may die, again and again.
TEST(ReplayLinkTest, AnAbsenceLeavesTheContentThatNoAbsenceWouldHaveLeft) {
  Linked always, sometimes;
  for (uint64_t step = 0; step < 10; ++step) {
    if (step == 3) sometimes.GoAway();
    if (step == 7) sometimes.ComeBack();
    always.link->Commit(CommitOf(step));
    sometimes.link->Commit(CommitOf(step));
    EXPECT_EQ(sometimes.link->attached(), step < 3 || step >= 7) << step;
  }
  EXPECT_EQ(sometimes.shards[0]->door.journal(), always.shards[0]->door.journal());
  EXPECT_EQ(sometimes.shards[0]->Content(), always.shards[0]->Content());
  EXPECT_THAT(always.shards[0]->Content().first, SizeIs(3));
  EXPECT_THAT(sometimes.Metrics(), HasSubstr("oxbow_learner_buffer_commits_dropped_total 0\n"));
  EXPECT_THAT(sometimes.Metrics(), HasSubstr("oxbow_learner_buffer_attached 1\n"));
}

// Promise: Memory is bounded.
TEST(ReplayLinkTest, TheBacklogKeepsTheNewestOffersAndCountsWhatItDrops) {
  Linked linked(/*shard_count=*/1, /*commits_max=*/3);
  linked.link->Commit({.step = LearnerStep(0), .offers = {Entry(1, 1, 0, 1)}});
  linked.GoAway();
  linked.link->Commit(
      {.step = LearnerStep(1), .offers = {Entry(2, 2, 1, 1)}, .used = {EntryId(1)}});
  for (uint64_t step = 2; step < 9; ++step) {
    linked.link->Commit(
        {.step = LearnerStep(step), .offers = {Entry(step + 1, step + 1, step, 1)}});
    if (step == 2) {
      linked.link->Commit({.step = LearnerStep(2), .rescored = {{EntryId(1), 0.5, true}}});
    }
  }
  EXPECT_THAT(linked.Metrics(), HasSubstr("oxbow_learner_buffer_commits_dropped_total 5\n"));
  EXPECT_THAT(linked.Metrics(), HasSubstr("oxbow_learner_buffer_attached 0\n"));

  linked.ComeBack();
  linked.link->Commit({.step = LearnerStep(9)});
  // Uses and new rewards are never dropped; a step with nothing left to say is not said.
  EXPECT_THAT(linked.shards[0]->door.journal(),
              ElementsAre("offer 1", "advance 0", "advance 1", "advance 2", "offer 7", "advance 6",
                          "offer 8", "advance 7", "offer 9", "advance 8", "advance 9"));
  EXPECT_EQ(linked.shards[0]->store->Find(EntryId(1))->uses, 1u);
  EXPECT_EQ(linked.shards[0]->store->Find(EntryId(1))->rescored, 0.5) << "what its tail came to";
  EXPECT_EQ(linked.shards[0]->store->Info().step, LearnerStep(10));
}

TEST(ReplayLinkTest, NothingIsDrawnWhileTheBufferIsAwayAndWaitingCommitsComeBeforeADraw) {
  Linked linked;
  linked.link->Commit({.step = LearnerStep(0), .offers = {Entry(1, 1, 0, 1)}});
  linked.GoAway();
  EXPECT_THAT(linked.link->Draw(LearnerStep(1), 4), IsEmpty());
  EXPECT_FALSE(linked.link->attached());
  EXPECT_FALSE(linked.link->Info().has_value());
  EXPECT_EQ(linked.link->Checkpoint("late", 2).code(), absl::StatusCode::kUnavailable);
  linked.link->Commit({.step = LearnerStep(1), .offers = {Entry(2, 2, 1, 1)}});
  EXPECT_THAT(linked.shards[0]->door.journal(), ElementsAre("offer 1", "advance 0"));

  linked.ComeBack();
  EXPECT_THAT(linked.link->Draw(LearnerStep(2), 4), SizeIs(2));
  EXPECT_THAT(linked.shards[0]->door.journal(),
              ElementsAre("offer 1", "advance 0", "offer 2", "advance 1", "draw 2"));
}

// The numbers that a step's log takes from Info, by name.
std::map<std::string, double> Numbers(const v1::InfoResponse& info) {
  std::map<std::string, double> numbers = {{"entries", info.entries()},
                                           {"bytes", info.bytes()},
                                           {"raw_reward_mean", info.raw_reward_mean()},
                                           {"priority_min", info.priority_min()},
                                           {"priority_mean", info.priority_mean()},
                                           {"age_mean", info.age_mean_steps()},
                                           {"age_max", info.age_max_steps()},
                                           {"uses_mean", info.uses_mean()}};
  for (const v1::NamedValue& offers : info.offers()) {
    EXPECT_TRUE(numbers.emplace(offers.name(), offers.value()).second) << offers.name() << " twice";
  }
  for (const v1::TableInfo& table : info.tables()) {
    numbers[table.name() + "/entries"] = static_cast<double>(table.entries());
    numbers[table.name() + "/evicted"] = static_cast<double>(table.evicted());
  }
  return numbers;
}

TEST(ReplayLinkTest, InfoOfSeveralShardsIsThatOfOneBufferWithTheSameEntries) {
  Linked one(/*shard_count=*/1), three(/*shard_count=*/3);
  std::vector<std::map<std::string, double>> seen;
  for (const Linked* linked : {&one, &three}) {
    // Shard 0 gets one entry, shard 1 three of another age, shard 2 none.
    linked->link->Commit({.step = LearnerStep(2), .offers = {Entry(1, 3, 0, 8)}});
    linked->link->Commit({.step = LearnerStep(3),
                          .offers = {Entry(2, 4, 2, 1), Entry(3, 7, 3, 2), Entry(4, 10, 1, 4),
                                     Entry(5, 4, 3, 0.5), Entry(2, 4, 2, 1), Entry(6, 3, 3, 1)},
                          .used = {EntryId(1)}});
    seen.push_back(Numbers(linked->link->Info().value()));
  }
  ASSERT_EQ(seen[0].size(), seen[1].size());
  for (const auto& [name, value] : seen[0]) EXPECT_NEAR(seen[1][name], value, 1e-12) << name;
  EXPECT_EQ(seen[1]["raw_reward_mean"], (8 + 1 + 2 + 4) / 4.0);
  EXPECT_EQ(seen[1]["OFFER_OUTCOME_REJECTED_LOWER"], 2) << "one on each of two shards";
}

TEST(ReplayLinkTest, ARestoreThatFoundNoBufferIsDoneFirstWhenItIsBack) {
  Linked linked;
  linked.link->Commit({.step = LearnerStep(0), .offers = {Entry(1, 1, 0, 1)}});
  ASSERT_TRUE(linked.link->Checkpoint("one", 2).ok());
  linked.link->Commit({.step = LearnerStep(1), .offers = {Entry(2, 2, 1, 1)}});
  linked.GoAway();
  linked.link->Commit(
      {.step = LearnerStep(2), .offers = {Entry(3, 3, 2, 1)}});  // Belongs to the old past.
  linked.link->Restore("one");
  EXPECT_FALSE(linked.link->attached());
  linked.link->Commit({.step = LearnerStep(1), .offers = {Entry(4, 4, 1, 1)}});

  linked.ComeBack();
  linked.link->Commit({.step = LearnerStep(2)});
  EXPECT_THAT(linked.shards[0]->door.journal(),
              ElementsAre("offer 1", "advance 0", "checkpoint one", "offer 2", "advance 1",
                          "restore one", "offer 4", "advance 1", "advance 2"));
  const auto [entries, age] = linked.shards[0]->Content();
  std::vector<uint64_t> ids;
  for (const buffer::Entry& entry : entries) ids.push_back(entry.id.value);
  EXPECT_THAT(ids, ElementsAre(1, 4));
  EXPECT_EQ(age, LearnerStep(3));
}

// Otherwise a buffer that is ahead of the learner would refuse every step to come.
TEST(ReplayLinkTest, ACheckpointTheBufferDoesNotHaveEmptiesIt) {
  Linked linked;
  for (uint64_t step = 0; step < 5; ++step) linked.link->Commit(CommitOf(step));
  linked.link->Restore("gone");
  EXPECT_TRUE(linked.link->attached());
  EXPECT_THAT(linked.shards[0]->Content().first, IsEmpty());
  EXPECT_THAT(linked.Metrics(),
              HasSubstr("oxbow_learner_buffer_failures_total{call=\"restore\"} 1\n"));
  linked.link->Commit({.step = LearnerStep(1), .offers = {Entry(7, 7, 1, 1)}});
  EXPECT_THAT(linked.link->Draw(LearnerStep(2), 1), SizeIs(1));
}

// The buffer knows no noise levels of a group's trajectories: they are those of its schedule.
// Promise: Verification names the damage.
TEST(ReplayLinkTest, AGroupThatIsKeptIsSoundToItsBuffer) {
  Linked linked;
  PlannedGroup planned = PlannedOf(1, 0, 0);
  planned.prompt = run::MakePrompt("digits", "{}");
  v1::Group group;
  for (int sample = 0; sample < 2; ++sample) {
    v1::Trajectory& member = *group.add_trajectories();
    member = Entry(1, 1, 0, 0.5).trajectory();
    member.mutable_latents()->set_data(std::string(3 * kLatentBytes, '\0'));
    for (int step = 0; step < kSteps; ++step) {
      member.add_log_prob(-1);
      member.add_behaviour_version(1);
    }
  }
  linked.link->Commit({.step = LearnerStep(0), .groups = {*GroupEntry(group, planned, 0.5, {})}});
  group.mutable_trajectories(1)->set_log_prob(0, std::numeric_limits<float>::quiet_NaN());
  planned.id = GroupId(2);
  linked.link->Commit({.step = LearnerStep(1), .groups = {*GroupEntry(group, planned, 0.5, {})}});
  std::vector<std::string> problems;
  const buffer::VerifiedPage page = linked.shards[0]->store->Verify("", 100).value();
  ASSERT_THAT(page.entries, SizeIs(2));
  for (const buffer::VerifiedRecord& record : page.entries) {
    problems.insert(problems.end(), record.problems.begin(), record.problems.end());
  }
  EXPECT_THAT(problems, ElementsAre("log-probs or rewards are not finite"));
}

// A link whose calls have at most `bytes`, to a buffer that takes no more at a time.
std::unique_ptr<Linked> LinkedBy(uint64_t call_bytes, uint64_t offer_bytes) {
  return std::make_unique<Linked>(/*shard_count=*/1, /*commits_max=*/64, kKept, call_bytes,
                                  offer_bytes);
}

// Seven entries of which conditioning is the larger part, as it is of real models. The last one is
// of the second one's prompt.
ReplayLink::StepCommit LargeCommit(uint64_t& entry_bytes) {
  ReplayLink::StepCommit commit{.step = LearnerStep(1)};
  for (uint64_t id = 1; id <= 7; ++id) {
    commit.offers.push_back(Entry(id, id == 7 ? 2 : id, 1, static_cast<double>(id)));
    v1::Tensor& tokens = *commit.offers.back().mutable_conditioning()->mutable_tokens();
    tokens.set_data(std::string(1000, 'c'));
    tokens.set_shape(0, 1000);
    entry_bytes = commit.offers.back().ByteSizeLong();
  }
  return commit;
}

// Promise: Memory is bounded.
TEST(ReplayLinkTest, ACommitLargerThanACallLeavesWhatOneCallWouldHaveLeft) {
  uint64_t bytes = 0;
  const ReplayLink::StepCommit commit = LargeCommit(bytes);
  const auto whole = LinkedBy(100 * bytes, 100 * bytes);
  const auto split = LinkedBy(2 * bytes, 2 * bytes);
  for (const auto& linked : {whole.get(), split.get()}) {
    linked->link->Commit(commit);
    EXPECT_TRUE(linked->link->attached());
    EXPECT_THAT(linked->Metrics(), HasSubstr("oxbow_learner_buffer_commits_dropped_total 0\n"));
  }
  EXPECT_THAT(whole->shards[0]->door.journal(), ElementsAre("offer 1 2 3 4 5 6 7", "advance 1"));
  EXPECT_THAT(split->shards[0]->door.journal(),
              ElementsAre("offer 1 2", "offer 3 4", "offer 5 6", "offer 7", "advance 1"));
  EXPECT_EQ(split->shards[0]->Content(), whole->shards[0]->Content());
  EXPECT_THAT(split->shards[0]->Content().first, SizeIs(6));
}

TEST(ReplayLinkTest, ACommitThatBrokeOffBetweenItsCallsGoesOnFromThere) {
  uint64_t bytes = 0;
  const ReplayLink::StepCommit commit = LargeCommit(bytes);
  const auto whole = LinkedBy(100 * bytes, 100 * bytes);
  const auto broken = LinkedBy(3 * bytes, 3 * bytes);
  broken->shards[0]->door.ShutAfterOne();
  for (const auto& linked : {whole.get(), broken.get()}) linked->link->Commit(commit);
  EXPECT_FALSE(broken->link->attached());
  broken->ComeBack();
  for (const auto& linked : {whole.get(), broken.get()}) {
    linked->link->Commit({.step = LearnerStep(2)});
  }
  EXPECT_THAT(broken->shards[0]->door.journal(),
              ElementsAre("offer 1 2 3", "offer 4 5 6", "offer 7", "advance 1", "advance 2"));
  EXPECT_EQ(broken->shards[0]->Content(), whole->shards[0]->Content());
}

// A buffer that was told to take less than a call has: that is no absence, and asking again would
// go on for ever.
TEST(ReplayLinkTest, ACallTheBufferNeverHasRoomForIsARefusal) {
  uint64_t bytes = 0;
  const ReplayLink::StepCommit commit = LargeCommit(bytes);
  const auto linked = LinkedBy(100 * bytes, 2 * bytes);
  linked->link->Commit(commit);
  EXPECT_TRUE(linked->link->attached());
  EXPECT_THAT(linked->Metrics(), HasSubstr("oxbow_learner_buffer_commits_dropped_total 1\n"));
  linked->link->Commit({.step = LearnerStep(2), .offers = {commit.offers[0]}});
  EXPECT_THAT(linked->shards[0]->door.journal(), ElementsAre("offer 1", "advance 2"));
}

// A commit that can never succeed must not keep those behind it waiting for ever.
TEST(ReplayLinkTest, ACommitTheBufferRefusesIsDroppedAndCounted) {
  Linked linked;
  linked.link->Commit({.step = LearnerStep(5), .offers = {Entry(1, 1, 5, 1)}});
  linked.link->Commit({.step = LearnerStep(4)});  // The buffer is past that step.
  linked.link->Commit({.step = LearnerStep(6), .offers = {Entry(2, 2, 6, 1)}});
  EXPECT_TRUE(linked.link->attached());
  EXPECT_THAT(linked.Metrics(), HasSubstr("oxbow_learner_buffer_commits_dropped_total 1\n"));
  EXPECT_THAT(linked.Metrics(),
              HasSubstr("oxbow_learner_buffer_failures_total{call=\"commit\"} 1\n"));
  EXPECT_THAT(linked.link->Draw(LearnerStep(7), 2), SizeIs(2));
}

}  // namespace
}  // namespace oxbow::learner
