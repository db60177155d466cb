// SPDX-License-Identifier: Apache-2.0
#include "core/reward/shown_items.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oxbow::reward {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Frame i is one pixel of value i.
std::vector<Image8> Clip(int frames) {
  std::vector<Image8> clip;
  for (int i = 0; i < frames; ++i) clip.push_back({1, 1, 1, {static_cast<uint8_t>(i)}});
  return clip;
}

std::vector<int> Pixels(const Item& item) {
  std::vector<int> pixels;
  for (const Image8& frame : item.frames) pixels.push_back(frame.pixels.front());
  return pixels;
}

// Each shown item scores its first pixel.
absl::StatusOr<Score> Scored(const RewardFacts& facts, const Item& item) {
  const ShownItems shown(facts, {&item, 1});
  std::vector<absl::StatusOr<Score>> scores;
  for (const Item& one : shown.items()) {
    scores.emplace_back(Score{.value = static_cast<double>(Pixels(one).front()), .note = "n"});
  }
  return shown.Combine(std::move(scores)).front();
}

// Promise: A video is a video everywhere.

TEST(ShownItemsTest, AScorerOfPicturesSeesTheFramesInOrderAndTheirMeanIsTheScore) {
  for (const uint32_t every : {1U, 4U}) {
    const RewardFacts facts{.name = "r", .frames_every = every};
    const std::vector<Image8> clip = Clip(9);
    const Item item{.prompt = "p", .metadata_json = "", .frames = clip, .group = 7};
    const ShownItems shown(facts, {&item, 1});
    std::vector<int> seen;
    for (const Item& one : shown.items()) {
      EXPECT_FALSE(one.is_video());
      EXPECT_EQ(one.group, 7);
      seen.push_back(Pixels(one).front());
    }
    EXPECT_EQ(seen, every == 1 ? (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8})
                               : (std::vector<int>{0, 4, 8}));
    EXPECT_DOUBLE_EQ(Scored(facts, item)->value, 4);
  }
}

// The sender may leave frames out, or this does: a scorer sees the same.
TEST(ShownItemsTest, AScorerOfVideosSeesTheFramesThatItReadsWhateverTravelled) {
  const RewardFacts facts{.name = "r", .videos = true, .frames_every = 4};
  const std::vector<Image8> all = Clip(10);
  for (const uint32_t sent : {1U, 2U, 4U}) {
    std::vector<Image8> frames;
    for (size_t i = 0; i < all.size(); i += sent) frames.push_back(all[i]);
    const Item item{.prompt = "", .metadata_json = "", .frames = frames, .frames_every = sent};
    const ShownItems shown(facts, {&item, 1});
    ASSERT_EQ(shown.items().size(), 1);
    EXPECT_THAT(Pixels(shown.items().front()), ElementsAre(0, 4, 8)) << sent;
    EXPECT_TRUE(shown.items().front().is_video());
  }
}

TEST(ShownItemsTest, AVideoOfOneFrameIsAPicture) {
  const std::vector<Image8> clip = Clip(1);
  const Item item{.prompt = "", .metadata_json = "", .frames = clip};
  for (const bool videos : {false, true}) {
    const ShownItems shown({.name = "r", .videos = videos, .frames_every = 4}, {&item, 1});
    ASSERT_EQ(shown.items().size(), 1);
    EXPECT_EQ(shown.items().front().frames.data(), item.frames.data());
    EXPECT_FALSE(shown.items().front().is_video());
  }
}

TEST(ShownItemsTest, WhatAScorerDoesNotReadIsAnErrorOfThatItemAlone) {
  const std::vector<Image8> clip = Clip(6);
  const std::vector<Item> items = {
      {.prompt = "", .metadata_json = "", .frames = clip},
      {.prompt = "", .metadata_json = "", .frames = {clip.data(), 1}},
      {.prompt = "", .metadata_json = "", .frames = clip, .frames_every = 3}};
  const auto errors = [&](const RewardFacts& facts) {
    const ShownItems shown(facts, items);
    std::vector<absl::StatusOr<Score>> scores;
    for (size_t k = 0; k < shown.items().size(); ++k) scores.emplace_back(Score{.value = 1});
    const auto combined = shown.Combine(std::move(scores));
    std::vector<std::string> texts;
    for (const auto& score : combined) texts.emplace_back(score.status().message());
    return texts;
  };
  EXPECT_THAT(
      errors({.name = "ranks", .groupwise = true}),
      ElementsAre(HasSubstr("ranks reads no videos: 6 frames"), "", HasSubstr("reads no videos")));
  EXPECT_THAT(errors({.name = "clips", .images = false, .videos = true}),
              ElementsAre("", HasSubstr("clips reads no pictures: 1 frame"),
                          HasSubstr("reads the frames 0, 1, 2")));
  EXPECT_THAT(errors({.name = "r", .frames_every = 4}),
              ElementsAre("", "", HasSubstr("0, 4, 8, ... of a video, and got 0, 3, 6, ...")));
}

TEST(ShownItemsTest, AFrameWithoutAScoreLeavesItsVideoWithoutOne) {
  const std::vector<Image8> clip = Clip(3);
  const Item item{.prompt = "", .metadata_json = "", .frames = clip};
  const ShownItems shown({.name = "r"}, {&item, 1});
  const auto combined = shown.Combine(
      {Score{.value = 1}, absl::InternalError("the second frame"), Score{.value = 1}});
  EXPECT_THAT(std::string(combined.front().status().message()), HasSubstr("the second frame"));
}

}  // namespace
}  // namespace oxbow::reward
