#include "cli/replay/replay_strip.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_EQ(StripOf(EntryOf({1, 1, 2, 1, 1}, {0, 0}), nullptr).status().code(),
            absl::StatusCode::kFailedPrecondition)
      << "a video";
  EXPECT_EQ(StripOf(EntryOf({2, 1, 1, 1}, {0}), nullptr).status().code(),
            absl::StatusCode::kInvalidArgument)
      << "bytes are missing";
}

}  // namespace
}  // namespace oxbow::cli
