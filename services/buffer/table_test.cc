// SPDX-License-Identifier: Apache-2.0
// A table against what a plain search over its entries says.
#include "services/buffer/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/philox.h"

namespace oxbow::buffer {
namespace {

constexpr replay::Decay kDecay{replay::DecayForm::kMultiplicative, 0.9, 0};

Entry RecordOf(uint64_t id, uint64_t prompt, uint64_t birth = 0, double reward = 1) {
  return {.id = EntryId(id),
          .place = id,
          .prompt = PromptId(prompt),
          .birth = LearnerStep(birth),
          .reward = reward,
          .header_bytes = id % 7};
}

TEST(TableTest, FindsWhatAPlainSearchFinds) {
  const uint64_t seed = 5;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  RandomStream random({.seed = seed});
  Table table(replay::BestTable(1000), kDecay);
  std::map<PromptId, Entry> plain;
  for (uint64_t i = 1; i <= 5000; ++i) {
    const PromptId prompt(random.NextBelow(40));
    if (const auto found = plain.find(prompt); found != plain.end()) {
      ASSERT_EQ(table.Remove(found->second.id), found->second);
      plain.erase(found);
    } else {
      const double reward = static_cast<double>(random.NextBelow(8)) / 4 - 0.5;
      plain[prompt] = RecordOf(Mix64(i), prompt.value, i / 50, reward);
      table.Add(plain[prompt]);
    }
    const Entry* lowest = nullptr;
    uint64_t bytes = 0;
    for (const auto& [_, entry] : plain) {
      bytes += entry.bytes();
      if (lowest == nullptr ||
          replay::KeyOf(kDecay, entry.reward, entry.birth, entry.id) <
              replay::KeyOf(kDecay, lowest->reward, lowest->birth, lowest->id)) {
        lowest = &entry;
      }
    }
    ASSERT_EQ(table.size(), plain.size());
    ASSERT_EQ(table.bytes(), bytes);
    ASSERT_EQ(table.NextToLeave() == nullptr, lowest == nullptr);
    if (lowest != nullptr) {
      ASSERT_EQ(*table.NextToLeave(), *lowest);
    }
    const auto found = plain.find(prompt);
    ASSERT_EQ(table.NewestOfPrompt(prompt) == nullptr, found == plain.end());
    if (found != plain.end()) {
      ASSERT_EQ(*table.Find(found->second.id), found->second);
    }
  }
}

// In pages of any size, from any place, also behind an entry that has left.
TEST(TableTest, TheNewestThatMayBeDrawnAreThoseOfASortedCopy) {
  const uint64_t seed = 11;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  RandomStream random({.seed = seed});
  for (int round = 0; round < 200; ++round) {
    Table table(replay::BestTable(1000), kDecay);
    std::vector<Entry> sorted;
    const uint64_t count = random.NextBelow(60);
    for (uint64_t i = 1; i <= count; ++i) {
      Entry entry = RecordOf(Mix64(i + 100 * static_cast<uint64_t>(round)), i, random.NextBelow(9));
      entry.uses = random.NextBelow(4);
      table.Add(entry);
      sorted.push_back(entry);
    }
    const LearnerStep step(random.NextBelow(12));
    const replay::DrawLimits limits{.uses_max = random.NextBelow(4),
                                    .age_max = random.NextBelow(6)};
    std::erase_if(sorted, [&](const Entry& entry) {
      return !replay::Eligible(entry.birth, entry.uses, step, limits);
    });
    std::sort(sorted.begin(), sorted.end(), [](const Entry& a, const Entry& b) {
      return a.birth != b.birth ? b.birth < a.birth : a.id < b.id;
    });
    const uint64_t page = 1 + random.NextBelow(20);
    std::vector<Entry> found;
    Entry last = RecordOf(0, 0);
    while (true) {
      const auto more = table.Newest(step, limits, last.id, last.birth, page);
      ASSERT_LE(more.size(), page);
      if (more.empty()) break;
      for (const Entry* entry : more) found.push_back(*entry);
      last = found.back();
      if (random.NextBelow(3) == 0) table.Remove(last.id);
    }
    ASSERT_EQ(found, sorted) << "round " << round;
  }
}

// Promise: One entry per prompt.
TEST(TableTest, SecondEntryOfAPromptDies) {
  Table table(replay::BestTable(2), kDecay);
  table.Add(RecordOf(1, 1));
  EXPECT_DEATH(table.Add(RecordOf(2, 1)), "prompt twice");
}

TEST(TableTest, APolicyDecidesWhoEntersAndWhoLeaves) {
  const replay::TablePolicy append{.name = "a", .capacity = 2, .age_max = 3};
  replay::TablePolicy per_prompt = append;
  per_prompt.insert = replay::InsertPolicy::kAppendPerPrompt;
  for (const replay::TablePolicy& policy : {append, per_prompt, replay::BestTable(2)}) {
    SCOPED_TRACE(replay::NameOf(policy.insert));
    Table table(policy, kDecay);
    table.Add(RecordOf(1, /*prompt=*/1, /*birth=*/0, /*reward=*/4));
    table.Add(RecordOf(2, /*prompt=*/2, /*birth=*/1, /*reward=*/2));
    const bool best = policy.insert == replay::InsertPolicy::kBetter;
    const bool appends = policy.insert == replay::InsertPolicy::kAppend;
    EXPECT_EQ(table.NextToLeave()->id, EntryId(best ? 2 : 1)) << "the lowest, or the oldest";
    const replay::Decision same = table.Decide(RecordOf(3, 1, 1, 3), LearnerStep(1));
    EXPECT_EQ(same.verdict, best      ? replay::Verdict::kReject
                            : appends ? replay::Verdict::kInsert
                                      : replay::Verdict::kReplace);
    const replay::Decision other = table.Decide(RecordOf(3, 3, 1, 3), LearnerStep(1));
    EXPECT_EQ(other.verdict, best ? replay::Verdict::kReplace : replay::Verdict::kInsert);
    EXPECT_EQ(other.victim, EntryId(best ? 2 : 0));
    EXPECT_EQ(table.TooOld(LearnerStep(3)), nullptr);
    EXPECT_EQ(table.TooOld(LearnerStep(4)) != nullptr, !best) << "born in step 0";
  }
}

// In the order of ids 3 is behind an unknown 2; in the order of arrival nothing is known of it.
TEST(TableTest, EntriesBehindAnUnknownIdDependOnTheOrder) {
  Table best(replay::BestTable(9), kDecay);
  Table queue({.name = "q", .capacity = 9}, kDecay);
  for (const uint64_t id : {3, 1, 5}) {
    Entry entry = RecordOf(id, id);
    best.Add(entry);
    entry.place = 10 + queue.size();
    queue.Add(entry);
  }
  const auto ids = [](const std::vector<const Entry*>& entries) {
    std::vector<uint64_t> found;
    for (const Entry* entry : entries) found.push_back(entry->id.value);
    return found;
  };
  EXPECT_EQ(ids(best.After(EntryId(2), 9)), (std::vector<uint64_t>{3, 5}));
  EXPECT_EQ(ids(queue.After(EntryId(2), 9)), (std::vector<uint64_t>{3, 1, 5}));
  EXPECT_EQ(ids(queue.After(EntryId(3), 1)), (std::vector<uint64_t>{1}));
}

TEST(TableTest, TheNewestEntriesAreDrawnFirst) {
  Table table(replay::BestTable(9, replay::DrawPolicy::kNewest), kDecay);
  for (const auto& [id, birth] : {std::pair{1, 4}, {2, 6}, {3, 9}, {4, 6}, {5, 5}}) {
    Entry entry = RecordOf(static_cast<uint64_t>(id), static_cast<uint64_t>(id));
    entry.birth = LearnerStep(static_cast<uint64_t>(birth));
    table.Add(entry);
  }
  const auto drawn = [&](uint64_t count) { return table.Draw(LearnerStep(9), count, 1); };
  EXPECT_EQ(drawn(3).eligible, 4u) << "3 was born in the step itself";
  EXPECT_EQ(drawn(3).entries, (std::vector<EntryId>{EntryId(2), EntryId(4), EntryId(5)}));
  EXPECT_EQ(drawn(9).entries.size(), 4u);
}

TEST(TableTest, BestAndVariedDrawsGoByTheNewestRewardOfAnEntry) {
  const auto drawn = [](replay::DrawPolicy policy, uint64_t count) {
    Table table(replay::BestTable(9, policy, {.uses_max = 2}), kDecay);
    for (const auto& [id, reward] : {std::pair{1, .2}, {2, .9}, {3, .1}, {4, .8}, {5, 1.}}) {
      Entry entry = RecordOf(static_cast<uint64_t>(id), static_cast<uint64_t>(id));
      entry.reward = reward;
      entry.uses = id == 5 ? 2 : 0;
      table.Add(entry);
    }
    table.Rescore({.entry = EntryId(4), .reward = .95, .failed = false});
    return table.Draw(LearnerStep(90), count, 1).entries;
  };
  EXPECT_EQ(drawn(replay::DrawPolicy::kBest, 3),
            (std::vector<EntryId>{EntryId(4), EntryId(2), EntryId(1)}));
  EXPECT_EQ(drawn(replay::DrawPolicy::kVaried, 3),
            (std::vector<EntryId>{EntryId(4), EntryId(2), EntryId(3)}));
  EXPECT_EQ(drawn(replay::DrawPolicy::kVaried, 9).size(), 4u) << "5 was used up";
}

// An entry that fails every second time has at most one failure in a row.
TEST(TableTest, ALearnableDrawFollowsAllThatRegenerationsHaveShown) {
  Table table(replay::BestTable(9, replay::DrawPolicy::kLearnable), kDecay);
  const std::map<uint64_t, std::string> histories = {
      {1, "fsfsfs"}, {2, "ssssss"}, {3, ""}, {4, "ffffff"}};
  std::map<uint64_t, double> weights;
  double sum = 0;
  for (const auto& [id, history] : histories) {
    table.Add(RecordOf(id, id));
    uint64_t failed = 0;
    for (const char outcome : history) {
      table.Rescore({.entry = EntryId(id), .reward = {}, .failed = outcome == 'f'});
      failed += outcome == 'f' ? 1 : 0;
    }
    weights[id] = replay::Learnability(history.size() - failed, failed);
    sum += weights[id];
  }
  constexpr int kDraws = 8000;
  std::map<uint64_t, double> counts;
  for (int step = 1; step <= kDraws; ++step) {
    const auto drawn = table.Draw(LearnerStep(static_cast<uint64_t>(step) + 100), 1, 17);
    ASSERT_EQ(drawn.entries.size(), 1u);
    ++counts[drawn.entries[0].value];
  }
  double chi_squared = 0;
  for (const auto& [id, weight] : weights) {
    const double expected = kDraws * weight / sum;
    chi_squared += (counts[id] - expected) * (counts[id] - expected) / expected;
  }
  EXPECT_LT(chi_squared, 16.3);  // 99.9 % quantile at 3 degrees of freedom.
  EXPECT_GT(counts[1], 1.5 * counts[2]);
}

}  // namespace
}  // namespace oxbow::buffer
