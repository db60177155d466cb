// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/entry_conversion.h"

#include <gtest/gtest.h>

#include "io/picture_file.h"
#include "tests/testing/replay_entries.h"

namespace oxbow::buffer {
namespace {

v1::ReplayEntry Offered(const std::string& picture) {
  v1::ReplayEntry entry = TestMessage(7, 1, 0, 0.5);
  entry.mutable_trajectory()->mutable_latents()->clear_data();
  if (!picture.empty()) entry.mutable_trajectory()->set_picture(picture);
  return entry;
}

// Promise: The page shows the pictures that replay keeps.
TEST(EntryConversionTest, ThePictureIsApartFromTheHeaderAndComesBack) {
  const Entry stored = EntryFromProto(Offered("a picture")).value();
  EXPECT_EQ(stored.header, EntryFromProto(Offered("")).value().header);
  const v1::ReplayEntry back = EntryToProto(stored).value();
  EXPECT_EQ(back.trajectory().picture(), "a picture");
  EXPECT_EQ(back.conditioning().SerializeAsString(),
            Offered("").conditioning().SerializeAsString());
  Entry unread = stored;
  unread.conditioning.clear();
  EXPECT_EQ(EntryToProto(unread)->trajectory().picture(), "");
}

TEST(EntryConversionTest, APictureNeedsNoConditioning) {
  v1::ReplayEntry entry = Offered("a picture");
  entry.clear_conditioning();
  const v1::ReplayEntry back = EntryToProto(EntryFromProto(entry).value()).value();
  EXPECT_EQ(back.trajectory().picture(), "a picture");
  EXPECT_FALSE(back.has_conditioning());
}

// As an older version stored it.
TEST(EntryConversionTest, AnEntryOfAnOlderStoreHasNone) {
  Entry old;
  old.conditioning = Offered("").conditioning().SerializeAsString();
  const v1::ReplayEntry back = EntryToProto(old).value();
  EXPECT_EQ(back.conditioning().SerializeAsString(), old.conditioning);
  EXPECT_FALSE(back.has_trajectory());
}

// Promise: Memory is bounded.
TEST(EntryConversionTest, ALargePictureIsRefused) {
  EXPECT_TRUE(EntryFromProto(Offered(std::string(io::kPreviewBytesMax, 'x'))).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(
      EntryFromProto(Offered(std::string(io::kPreviewBytesMax + 1, 'x'))).status()));
}

}  // namespace
}  // namespace oxbow::buffer
