// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cli/replay/replay_entry.h"
#include "io/image.h"

namespace oxbow::cli {
namespace {

v1::ReplayEntry EntryOf(const std::vector<int64_t>& shape, const std::vector<float>& values) {
  v1::ReplayEntry entry;
  v1::Trajectory& trajectory = *entry.mutable_trajectory();
  trajectory.mutable_latents()->set_dtype(v1::DTYPE_F32);
  for (const int64_t size : shape) trajectory.mutable_latents()->add_shape(size);
  trajectory.set_first_latent(2);
  trajectory.mutable_latents()->set_data(values.data(), values.size() * sizeof(float));
  return entry;
}

TEST(ReplayStripTest, AnImageIsShownAsItIs) {
  // Two latents of one channel, 1 x 1: black and white.
  const auto entry = EntryOf({2, 1, 1, 1}, {-1.0f, 1.0f});
  const Image8 strip = StripOf(entry, nullptr).value();
  ASSERT_TRUE(io::IsValid(strip));
  const auto holds = [&](uint8_t grey) {
    for (size_t i = 0; i + 2 < strip.pixels.size(); i += 3) {
      if (strip.pixels[i] == grey && strip.pixels[i + 1] == grey && strip.pixels[i + 2] == grey) {
        return true;
      }
    }
    return false;
  };
  EXPECT_TRUE(holds(0));
  EXPECT_TRUE(holds(255));
  EXPECT_GT(strip.width, strip.height) << "side by side";
}

TEST(ReplayStripTest, ManyChannelsAreShownInFalseColours) {
  const auto entry = EntryOf({3, 16, 4, 4}, std::vector<float>(3 * 16 * 16, 7.0f));
  EXPECT_TRUE(io::IsValid(StripOf(entry, nullptr).value()));
}

// One row per latent: the strip of a video is that of its frames as pictures.
// Promise: A video is a video everywhere.
TEST(ReplayStripTest, AVideoIsItsFramesFromLeftToRight) {
  std::vector<float> values;
  for (int i = 0; i < 2 * 3 * 4; ++i) values.push_back(static_cast<float>(i) * 0.08f - 1);
  const auto video = EntryOf({2, 1, 3, 2, 2}, values);
  const Image8 strip = StripOf(video, nullptr).value();
  ASSERT_TRUE(io::IsValid(strip));
  EXPECT_GT(strip.width, strip.height) << "three frames in a row, two rows";
  const auto column = [&](double part) {
    std::vector<uint8_t> greys;
    const auto x = static_cast<size_t>(strip.width * part);
    for (int y = 0; y < strip.height; ++y) {
      greys.push_back(strip.pixels[(static_cast<size_t>(y) * strip.width + x) * 3]);
    }
    return greys;
  };
  const auto grey = [&](int i) {
    return static_cast<uint8_t>(std::lround(255 * (values[i] / 2 + 0.5)));
  };
  EXPECT_THAT(column(1. / 6 - 0.05), ::testing::IsSupersetOf({grey(0), grey(2), grey(12)}));
  EXPECT_THAT(column(3. / 6 - 0.05), ::testing::IsSupersetOf({grey(4), grey(6), grey(16)}));
  EXPECT_THAT(column(5. / 6 - 0.05), ::testing::IsSupersetOf({grey(8), grey(10), grey(20)}));
  EXPECT_TRUE(io::IsValid(
      StripOf(EntryOf({1, 16, 81, 2, 2}, std::vector<float>(16 * 81 * 4, 1)), nullptr).value()));
}

TEST(ReplayStripTest, FactsAreThoseOfEachLatent) {
  auto entry = EntryOf({2, 1, 1, 2}, {-1.0f, 3.0f, 0.5f, 0.5f});
  const auto facts = FactsOf(LatentsOf(entry).value(), entry);
  ASSERT_EQ(facts.size(), 2u);
  EXPECT_EQ(facts[0].index, 2u);
  EXPECT_EQ(facts[0].min, -1);
  EXPECT_EQ(facts[0].max, 3);
  EXPECT_EQ(facts[0].mean, 1);
  EXPECT_TRUE(facts[1].finite);
}

TEST(ReplayStripTest, LatentsOfAGroupAreCountedForEachMember) {
  auto entry = EntryOf({4, 1, 1, 1}, {1, 2, 3, 4});
  for (const uint32_t sample : {0, 5}) {
    v1::Trajectory& member = *entry.mutable_group()->add_trajectories();
    member.set_sample(sample);
    member.set_first_latent(1);
  }
  const auto facts = FactsOf(LatentsOf(entry).value(), entry);
  ASSERT_EQ(facts.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(facts[i].sample, i < 2 ? 0u : 5u) << i;
    EXPECT_EQ(facts[i].index, 1 + i % 2) << i;
  }
  entry.set_group_id(18446744073709551615u);
  EXPECT_THAT(EntryText(entry, {}, facts), ::testing::HasSubstr("5:x2"));
  EXPECT_EQ(EntryJson(entry, {}, facts)["group"], "18446744073709551615");
}

TEST(ReplayStripTest, EntriesThatCannotBeDrawnSayWhy) {
  EXPECT_EQ(StripOf({}, nullptr).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(StripOf(EntryOf({2, 1, 1}, {0, 0}), nullptr).status().code(),
            absl::StatusCode::kFailedPrecondition)
      << "neither pictures nor videos";
  EXPECT_EQ(StripOf(EntryOf({2, 1, 1, 1}, {0}), nullptr).status().code(),
            absl::StatusCode::kInvalidArgument)
      << "bytes are missing";
}

}  // namespace
}  // namespace oxbow::cli
