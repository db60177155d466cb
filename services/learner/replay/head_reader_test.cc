// SPDX-License-Identifier: Apache-2.0
// Heads are read while their owner goes on, step by step, and each answer is the call's own.
#include "services/learner/replay/head_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"

namespace oxbow::learner {
namespace {

using ::testing::SizeIs;

HeadReader::Entries Echo(const std::vector<EntryId>& ids) {
  std::vector<v1::ReplayEntry> entries(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) entries[i].set_entry_id(ids[i].value);
  return entries;
}

// Promise: No plan waits for stored latents. A step is planned and leased from what the buffer says
// of its entries; their latents are read meanwhile, and the learner has them when the step trains.
// A head that cannot be read then leaves its group, whose other samples train; it is no image that
// could not be scored. A deterministic run reads it again and waits for the shard first.
TEST(HeadReaderTest, ItsOwnerGoesOnWhileItReads) {
  absl::Notification may_read;
  HeadReader reader([&](const std::vector<EntryId>& ids) {
    may_read.WaitForNotification();
    return Echo(ids);
  });
  reader.Begin(LearnerStep(3), {EntryId(1), EntryId(2)});  // Would never come back.
  reader.Begin(LearnerStep(4), {EntryId(7)});
  may_read.Notify();
  const auto later = reader.Take(LearnerStep(4));
  ASSERT_TRUE(later.has_value() && later->ok());
  EXPECT_EQ((*later)->at(0).entry_id(), 7u);
  const auto first = reader.Take(LearnerStep(3));
  ASSERT_TRUE(first.has_value() && first->ok());
  EXPECT_THAT(**first, SizeIs(2));
  EXPECT_FALSE(reader.Take(LearnerStep(3)).has_value()) << "it was handed over";
}

// Promise: No plan waits for stored latents.
TEST(HeadReaderTest, AnErrorIsThatStepsAlone) {
  HeadReader reader([](const std::vector<EntryId>& ids) -> HeadReader::Entries {
    if (ids[0] == EntryId(1)) return absl::UnavailableError("away");
    return Echo(ids);
  });
  reader.Begin(LearnerStep(1), {EntryId(1)});
  reader.Begin(LearnerStep(2), {EntryId(2)});
  EXPECT_EQ(reader.Take(LearnerStep(1))->status(), absl::UnavailableError("away"));
  EXPECT_TRUE(reader.Take(LearnerStep(2))->ok());
  EXPECT_FALSE(reader.Take(LearnerStep(5)).has_value()) << "nothing was begun";
}

}  // namespace
}  // namespace oxbow::learner
