// SPDX-License-Identifier: Apache-2.0
#include "core/replay/reuse_rules.h"

#include <gtest/gtest.h>

#include "tests/golden/golden.h"

namespace oxbow::replay {
namespace {

using Places = std::vector<size_t>;

StoredEntry Stored(uint64_t id, uint64_t prompt, uint64_t birth, double reward = 1) {
  return {.id = EntryId(id),
          .prompt = PromptId(prompt),
          .birth = LearnerStep(birth),
          .uses = 0,
          .reward = reward};
}

// Promise: Reuse beyond a drawn head keeps its bounds. The number of replayed groups follows the
// need of fresh groups alone, which is part of every checkpoint. A run that is resumed plans the
// steps under way with as many of them, whatever the staleness budget. Only a fresh group that
// failed whole gets a stored success, only its own prompt's, and none that is in the step already.
// Successes that stand beside the groups change no mean, spread or denominator of theirs, weigh no
// more than the fresh samples with a signal, and are never pushed away. The head of k branches is
// judged once and each tail against its siblings. Stored successes are chosen as from a list of the
// whole buffer, and the bytes that the buffer sends for them do not grow with it. Groups that
// dynamic sampling replaced tell of need and of success, rates are shares of the full reward, and a
// run that asks for its own window gets no other. A killed learner and two ranks give the same
// losses with all of it at once.

// H(z) by hand: (z - .25) / .5 of four groups, rounded.
TEST(ReuseRulesTest, GoldenShareOfMixedGroups) {
  const struct {
    double need;
    uint32_t heads;
  } cases[] = {{0, 0},    {0.25, 0}, {0.31, 0}, {0.32, 1}, {0.43, 1}, {0.44, 2},
               {0.56, 2}, {0.57, 3}, {0.69, 4}, {0.68, 3}, {0.75, 4}, {1, 4}};
  for (const auto& c : cases) EXPECT_EQ(HeadsByNeed(4, c.need), c.heads) << c.need;
  EXPECT_EQ(HeadsByNeed(0, 1), 0u);
}

// A run is followed by whole numbers of committed steps; each plan is asked for when it is due, and
// again later, as after a resume.
TEST(ReuseRulesTest, GoldenPlansOfRuns) {
  for (const auto& r : testing::ReuseGolden()["need"]) {
    const size_t ahead = r["ahead"], steps = r["rewards"].size();
    ReuseState state;
    for (size_t committed = 0; committed <= steps; ++committed) {
      EXPECT_NEAR(state.need, r["need"][committed], testing::kGoldenTolerance);
      EXPECT_NEAR(state.success_rate, r["success_rate"][committed], testing::kGoldenTolerance);
      for (size_t step = committed; step <= committed + ahead; ++step) {
        const double need = NeedFor(state, LearnerStep(step), committed, ahead);
        EXPECT_EQ(HeadsByNeed(r["heads_max"], need), r["heads"][step])
            << "step " << step << " after " << committed << " of " << r;
      }
      if (committed == steps) break;
      const auto& share = r["without_signal"][committed];
      const ReuseState after =
          share.is_null() ? state : Followed(state, share, r["rewards"][committed]);
      state = Committed(state, after, ahead);
      EXPECT_LE(state.earlier.size(), ahead);
    }
  }
}

TEST(ReuseRulesTest, ARunBeginsInFullNeedAndLosesItWhereGroupsHaveASignal) {
  ReuseState state;
  EXPECT_EQ(HeadsByNeed(2, state.need), 2u);
  state = Followed(state, 0, 0.5);
  EXPECT_DOUBLE_EQ(state.need, 0.6);
  EXPECT_DOUBLE_EQ(state.success_rate, 0.2);
  for (int i = 0; i < 2; ++i) state = Followed(state, 0, 0.5);
  EXPECT_DOUBLE_EQ(state.need, 0.216);
  EXPECT_EQ(HeadsByNeed(2, state.need), 0u);
  for (int i = 0; i < 3; ++i) state = Followed(state, 1, 0);
  EXPECT_EQ(HeadsByNeed(2, state.need), 2u) << "need comes back";
}

TEST(ReuseRulesTest, TheNewestEntriesComeFirstWhateverTheirOrder) {
  const std::vector<StoredEntry> entries = {Stored(7, 1, 3), Stored(5, 2, 9), Stored(4, 3, 9),
                                            Stored(9, 4, 10), Stored(2, 5, 1)};
  EXPECT_EQ(NewestEntries(entries, 3, LearnerStep(10), {}, {}), (Places{2, 1, 0}))
      << "an entry born in step 10 is not there yet";
  EXPECT_EQ(NewestEntries(entries, 9, LearnerStep(10), {}, {EntryId(4)}), (Places{1, 0, 4}));
  EXPECT_EQ(NewestEntries(entries, 9, LearnerStep(10), {.uses_max = 0, .age_max = 7}, {}),
            (Places{2, 1, 0}));
  EXPECT_EQ(NewestEntries(entries, 0, LearnerStep(10), {}, {}), Places());
}

TEST(ReuseRulesTest, AnEntryIsAddedAtMostUsesMaxTimes) {
  std::vector<StoredEntry> entries = {Stored(1, 1, 1), Stored(2, 2, 1)};
  entries[0].uses = 4;
  EXPECT_EQ(NewestEntries(entries, 2, LearnerStep(5), {.uses_max = 4, .age_max = 0}, {}),
            (Places{1}));
}

TEST(ReuseRulesTest, AFailedGroupGetsItsOwnPromptsSuccessOnly) {
  const std::vector<StoredEntry> entries = {Stored(1, 8, 2, 1), Stored(2, 9, 2, 0.5)};
  const auto found = [&](uint64_t prompt, double best, std::vector<EntryId> taken = {}) {
    return EntryForFailure(entries, PromptId(prompt), best, LearnerStep(5), {}, taken);
  };
  EXPECT_EQ(found(8, 0), 0u);
  EXPECT_EQ(found(9, 0), 1u);
  EXPECT_EQ(found(9, 0.5), std::nullopt) << "no better than what the group has";
  EXPECT_EQ(found(7, 0), std::nullopt);
  EXPECT_EQ(found(8, 0, {EntryId(1)}), std::nullopt);
}

}  // namespace
}  // namespace oxbow::replay
