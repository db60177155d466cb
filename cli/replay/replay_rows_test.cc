// SPDX-License-Identifier: Apache-2.0
#include "cli/replay/replay_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace oxbow::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::ReplayEntry EntryOf(uint64_t id, double reward, uint64_t birth) {
  v1::ReplayEntry entry;
  entry.set_entry_id(id);
  entry.mutable_prompt()->set_text("text " + std::to_string(id));
  entry.set_raw_reward(reward);
  entry.set_priority(reward / 2);
  entry.set_birth_step(birth);
  entry.set_stored_bytes(2048);
  return entry;
}

std::vector<uint64_t> Ids(const std::vector<ReplayRow>& rows) {
  std::vector<uint64_t> ids;
  for (const ReplayRow& row : rows) ids.push_back(row.entry);
  return ids;
}

TEST(ReplayRowsTest, AgeCountsFromBirthAndStalenessFromTheOldestWeights) {
  v1::ReplayEntry entry = EntryOf(1, 0.5, 10);
  for (const uint64_t version : {18, 20})
    entry.mutable_trajectory()->add_behaviour_version(version);
  const ReplayRow row = RowOf(entry, {.step = 14, .updates = 2, .priority_known = true});
  EXPECT_EQ(row.age, 4u);
  EXPECT_EQ(row.staleness, 5.0) << "version 18 is that of step 9";
  EXPECT_EQ(row.priority, 0.25);
}

TEST(ReplayRowsTest, WhatIsNotKnownIsNotMadeUp) {
  v1::ReplayEntry entry = EntryOf(1, 0.5, 10);
  entry.mutable_trajectory()->add_behaviour_version(18);
  const ReplayRow row = RowOf(entry, {.step = 3, .updates = 0, .priority_known = false});
  EXPECT_EQ(row.age, 0u) << "born in a step that has not committed";
  EXPECT_FALSE(row.staleness.has_value());
  EXPECT_FALSE(row.priority.has_value());
  EXPECT_THAT(RowsText({row}), HasSubstr("       -"));
  EXPECT_TRUE(RowJson(row)["priority"].is_null());
  EXPECT_TRUE(RowJson(row)["last_used_step"].is_null());
}

TEST(ReplayRowsTest, IdsSurviveReadersWithoutLargeIntegers) {
  const ReplayRow row = RowOf(EntryOf(18446744073709551615u, 1, 0), {});
  EXPECT_EQ(RowJson(row)["entry"], "18446744073709551615");
}

TEST(ReplayRowsTest, LongAndStrangePromptsStayOnOneLine) {
  v1::ReplayEntry entry = EntryOf(1, 0.5, 0);
  entry.mutable_prompt()->set_text("a\nb\tc" + std::string(100, 'x'));
  const std::string text = RowsText({RowOf(entry, {})}, 20);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  EXPECT_THAT(text, HasSubstr("a b cxxxxxxxxxxxx..."));
}

TEST(TopRowsTest, KeepsWhatSortingAllWouldPutFirst) {
  const uint64_t seed = 20261121;
  std::mt19937_64 random(seed);
  for (const char* key : kRowKeys) {
    for (const bool reverse : {false, true}) {
      std::vector<ReplayRow> all;
      for (uint64_t id = 1; id <= 300; ++id) {
        v1::ReplayEntry entry = EntryOf(random(), static_cast<double>(random() % 7), random() % 5);
        entry.set_uses(static_cast<uint32_t>(random() % 4));
        if (random() % 3 > 0) entry.mutable_trajectory()->add_behaviour_version(random() % 9);
        entry.set_stored_bytes(random() % 1000);
        all.push_back(RowOf(entry, {.step = 9, .updates = 1, .priority_known = random() % 2 > 0}));
      }
      TopRows few = TopRows::By(key, reverse, 11).value();
      TopRows whole = TopRows::By(key, reverse, 1000).value();
      for (const ReplayRow& row : all) {
        few.Add(row);
        whole.Add(row);
      }
      EXPECT_EQ(few.seen(), 300u);
      std::vector<uint64_t> expected = Ids(std::move(whole).Take());
      expected.resize(11);
      EXPECT_EQ(Ids(std::move(few).Take()), expected) << key << ", seed " << seed;
    }
  }
}

TEST(TopRowsTest, LargestComeFirstAndUnknownLast) {
  TopRows top = TopRows::By("priority", false, 10).value();
  TopRows turned = TopRows::By("priority", true, 10).value();
  for (TopRows* rows : {&top, &turned}) {
    rows->Add(RowOf(EntryOf(1, 0.2, 0), {.step = 0, .updates = 0, .priority_known = true}));
    rows->Add(RowOf(EntryOf(2, 0.9, 0), {.step = 0, .updates = 0, .priority_known = false}));
    rows->Add(RowOf(EntryOf(3, 0.4, 0), {.step = 0, .updates = 0, .priority_known = true}));
  }
  EXPECT_THAT(Ids(std::move(top).Take()), ElementsAre(3, 1, 2));
  EXPECT_THAT(Ids(std::move(turned).Take()), ElementsAre(1, 3, 2));
  EXPECT_EQ(TopRows::By("colour", false, 1).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace oxbow::cli
