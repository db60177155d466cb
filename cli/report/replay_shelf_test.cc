// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "cli/report/watch_server.h"
#include "io/image.h"
#include "io/picture_file.h"
#include "services/buffer/entry_conversion.h"
#include "tests/testing/photo_like.h"
#include "tests/testing/replay_entries.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ReplayShelfTest : public ::testing::Test {
 protected:
  // As the buffer does it, which has ended when the page looks.
  void Offer(uint64_t id, const std::string& picture, double reward = 0.5) {
    v1::ReplayEntry entry = buffer::TestMessage(id, id, 0, reward);
    entry.mutable_prompt()->set_text(absl::StrCat("<b>prompt ", id));
    entry.mutable_trajectory()->set_picture(picture);
    const std::string latents =
        std::move(*entry.mutable_trajectory()->mutable_latents()->mutable_data());
    entry.mutable_trajectory()->mutable_latents()->clear_data();
    const auto store = buffer::ReplayStore::Open({.directory = directory_.path() / "replay",
                                                  .tables = {replay::BestTable(100)}})
                           .value();
    buffer::Entry offered = buffer::EntryFromProto(entry).value();
    offered.latents = latents;
    ASSERT_TRUE(store->Offer({Epoch(1)}, {offered}).ok());
  }

  const testing::ScopedDirectory directory_;
  FakeClock clock_;
  ReplayShelf shelf_{directory_.path(), clock_};
};

// Promise: The page shows the pictures that replay keeps. A worker makes a small picture of the
// sample that may become a replay entry; it is stored with the entry, counts in its bytes and is
// not read by training. `oxbow watch` shows the best entries by them, and `oxbow replay export`
// writes them.
TEST_F(ReplayShelfTest, TheBestEntriesStandWithTheirPicturesFirst) {
  const std::string photo = io::PreviewOf({testing::PhotoLike(512, 512, 1)});
  const std::string digit = io::PreviewOf({testing::PhotoLike(20, 20, 2)});
  Offer(7, photo, 0.25);
  Offer(8, digit, 0.75);
  const std::string section = shelf_.Section();
  EXPECT_THAT(section, AllOf(HasSubstr("The best of 2 entries"),
                             HasSubstr("<img src=\"replay/7.jpg\" width=\"256\" height=\"256\""),
                             HasSubstr("class=\"kept tiny\" href=\"replay/8.png\""),
                             HasSubstr("&lt;b&gt;prompt 7"), HasSubstr("0.75")));
  EXPECT_LT(section.find("replay/8.png"), section.find("replay/7.jpg")) << "the better one first";
  EXPECT_EQ(shelf_.Picture("7.jpg"), photo);
  EXPECT_EQ(shelf_.Picture("8.png"), digit);
  EXPECT_EQ(shelf_.Picture("8.jpg"), "");
}

TEST_F(ReplayShelfTest, ARowOfFramesHasTheRoomOfTwoPictures) {
  Offer(7, io::PreviewOf(std::vector<Image8>(5, testing::PhotoLike(416, 240, 1))));
  EXPECT_THAT(shelf_.Section(), HasSubstr("class=\"cell row\""));
}

// Entries of an older version, and bytes that are no picture.
// Promise: Foreign bytes crash no process.
TEST_F(ReplayShelfTest, AnEntryWithoutAPictureStandsThereWithoutOne) {
  Offer(7, "");
  Offer(8, "\xff\xd8 is no JPEG");
  const std::string section = shelf_.Section();
  EXPECT_THAT(section, AllOf(HasSubstr("prompt 7"), HasSubstr("prompt 8"), HasSubstr("no picture"),
                             Not(HasSubstr("<img"))));
  EXPECT_EQ(shelf_.Picture("8.jpg"), "");
}

TEST_F(ReplayShelfTest, TheBufferIsAskedOnceInTenSeconds) {
  EXPECT_EQ(shelf_.Section(), "") << "there is no buffer";
  Offer(7, io::PreviewOf({testing::PhotoLike(20, 20, 2)}));
  EXPECT_EQ(shelf_.Section(), "");
  clock_.Advance(absl::Seconds(10));
  EXPECT_THAT(shelf_.Section(), HasSubstr("The best of 1 entry,"));
}

}  // namespace
}  // namespace oxbow::cli
