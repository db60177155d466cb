// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/replay/table_policy.h"
#include "services/learner/replay/replay_offer.h"

namespace oxbow::learner {
namespace {

// Two members of two and three latents [1, 2] float32, whose bytes tell them apart.
v1::Group TestGroup() {
  v1::Group group;
  group.set_group_id(7);
  group.mutable_prompt()->set_id(5);
  char byte = 'a';
  for (const int count : {2, 3}) {
    v1::Trajectory& member = *group.add_trajectories();
    member.set_sample(static_cast<uint32_t>(group.trajectories_size() - 1));
    member.set_reward(count == 2 ? 0.25 : 0.75);
    member.set_schedule_id(9);
    v1::Tensor& latents = *member.mutable_latents();
    latents.set_dtype(v1::DTYPE_F32);
    for (const int size : {count, 1, 2}) latents.add_shape(size);
    for (int i = 0; i < count; ++i) latents.mutable_data()->append(8, byte++);
  }
  return group;
}

PlannedGroup Planned() {
  PlannedGroup planned;
  planned.id = GroupId(7);
  planned.step = LearnerStep(3);
  planned.prompt.set_id(5);
  planned.prompt.set_text("3 and 4");
  return planned;
}

TEST(GroupTablesTest, GroupComesBackAsItWent) {
  const v1::Group group = TestGroup();
  const auto entry = GroupEntry(group, Planned(), 0.5, {});
  ASSERT_TRUE(entry.has_value());
  EXPECT_EQ(entry->table(), replay::kRecentGroups);
  EXPECT_EQ(entry->birth_step(), 3u);
  EXPECT_EQ(entry->raw_reward(), 0.5);
  EXPECT_EQ(entry->trajectory().latents().shape(0), 5);
  EXPECT_EQ(entry->trajectory().schedule_id(), 9u);
  EXPECT_EQ(entry->trajectory().latents().data().size(), 40u);
  const auto back = GroupOfEntry(*entry);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->SerializeAsString(), group.SerializeAsString());
}

// Promise: The page shows the pictures that replay keeps.
TEST(GroupTablesTest, TheEntryOfAGroupHasItsPictureAndNoMemberHas) {
  v1::Group group = TestGroup();
  group.mutable_trajectories(1)->set_picture("a picture");
  const auto entry = GroupEntry(group, Planned(), 0.5, {});
  ASSERT_TRUE(entry.has_value());
  EXPECT_EQ(entry->trajectory().picture(), "a picture");
  EXPECT_EQ(GroupOfEntry(*entry)->SerializeAsString(), TestGroup().SerializeAsString());
}

std::string& BytesOf(v1::ReplayEntry& entry) {
  return *entry.mutable_trajectory()->mutable_latents()->mutable_data();
}

TEST(GroupTablesTest, BytesThatDoNotFitAreDataLoss) {
  const v1::ReplayEntry entry = *GroupEntry(TestGroup(), Planned(), 0.5, {});
  v1::ReplayEntry cut = entry;
  BytesOf(cut).pop_back();
  v1::ReplayEntry longer = entry;
  BytesOf(longer) += "x";
  v1::ReplayEntry none = entry;
  none.clear_group();
  for (const auto& wrong : {cut, longer, none}) {
    EXPECT_TRUE(absl::IsDataLoss(GroupOfEntry(wrong).status()));
  }
}

TEST(GroupTablesTest, GroupOfDifferentLatentsIsNotKept) {
  v1::Group group = TestGroup();
  group.mutable_trajectories(1)->mutable_latents()->set_dtype(v1::DTYPE_F16);
  EXPECT_FALSE(GroupEntry(group, Planned(), 0.5, {}).has_value());
  group.mutable_trajectories(1)->clear_latents();
  EXPECT_FALSE(GroupEntry(group, Planned(), 0.5, {}).has_value());
  EXPECT_FALSE(GroupEntry(v1::Group(), Planned(), 0.5, {}).has_value());
}

TEST(GroupTablesTest, EntriesOfAGroupHaveIdsOfTheirOwn) {
  std::set<uint64_t> ids;
  for (uint32_t sample = 0; sample < 64; ++sample) {
    ids.insert(EntryIdOf({}, GroupId(7), sample).value);
  }
  ids.insert(GroupEntry(TestGroup(), Planned(), 0.5, {})->entry_id());
  const v1::ReplayEntry prompt = HardPromptEntry(Planned(), 0, {});
  ids.insert(prompt.entry_id());
  EXPECT_EQ(ids.size(), 66u);
  EXPECT_EQ(prompt.prompt().text(), "3 and 4");
  EXPECT_FALSE(prompt.has_trajectory());
}

TEST(GroupTablesTest, FailedRewardsHaveNoPartInTheMean) {
  v1::Group group = TestGroup();
  EXPECT_EQ(MeanReward(group), 0.5);
  group.mutable_trajectories(0)->set_reward_failed(true);
  EXPECT_EQ(MeanReward(group), 0.75);
  group.mutable_trajectories(1)->set_reward_failed(true);
  EXPECT_EQ(MeanReward(group), std::nullopt);
}

}  // namespace
}  // namespace oxbow::learner
