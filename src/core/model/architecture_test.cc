// SPDX-License-Identifier: Apache-2.0
#include "core/model/architecture.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/small_sd3.h"

namespace oxbow::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr LatentPatch kSquare{.height = 2, .width = 2};
constexpr LatentGeometry kImages{.channels = 16, .side = 128, .patch = kSquare, .side_max = 192};
constexpr LatentGeometry kVideos{
    .channels = 4, .frames = 5, .side = 8, .patch = kSquare, .side_max = 16};

TEST(ArchitectureTest, SizesAreInPixelsAndAVideoHasFrames) {
  EXPECT_THAT(*LatentShape(kImages, {.space = 8}, {512, 768}), ElementsAre(16, 64, 96));
  EXPECT_THAT(*LatentShape(kImages, {.space = 8}, {}), ElementsAre(16, 128, 128)) << "its own size";
  EXPECT_THAT(*LatentShape(kVideos, {}, {8, 12}), ElementsAre(4, 5, 8, 12));
  EXPECT_EQ(TokensOf(kImages, {16, 64, 96}), 32 * 48);
  EXPECT_EQ(TokensOf(kVideos, {4, 5, 8, 12}), 5 * 4 * 6);
  EXPECT_TRUE(CheckDimensions(kVideos, {4, 5, 8, 12}).ok());
  EXPECT_THAT(std::string(CheckDimensions(kImages, {4, 5, 8, 12}).message()),
              HasSubstr("[C, H, W]"));
}

// SD3.5-M of 512 x 512 pixels: 1,713 kernels of 46 ms at eight rows, 262 ms at 48.
TEST(ArchitectureTest, LaunchesCountWhereKernelsAreShort) {
  const auto published = testing::GraphArchitecture(testing::kSd35MediumGraph);
  EXPECT_TRUE(LaunchesCount(*published, {16, 64, 64}, 8));
  EXPECT_TRUE(LaunchesCount(*published, {16, 32, 32}, 24));
  EXPECT_FALSE(LaunchesCount(*published, {16, 64, 64}, 48));
  EXPECT_FALSE(LaunchesCount(*published, {16, 128, 128}, 8));
  const auto small = testing::GraphArchitecture(testing::kDigitsGraph);
  EXPECT_TRUE(LaunchesCount(*small, {1, 8, 20}, 48)) << "a small network";
}

TEST(ArchitectureTest, ASizeThatDoesNotFitIsRefusedWithTheOnesThatDo) {
  for (const auto& [height, width] : {std::pair(520, 512), {512, 8}, {512, 2048}}) {
    const auto shape = LatentShape(kImages, {.space = 8}, {height, width});
    EXPECT_EQ(shape.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(shape.status().message()),
                HasSubstr("multiples of 16, at most 1536, for this model: " +
                          std::to_string(height) + " x " + std::to_string(width)));
  }
}

TEST(ArchitectureTest, ATokenMayHaveAnotherSizeAlongEachAxis) {
  constexpr LatentGeometry kFlat{.channels = 4,
                                 .frames = 4,
                                 .side = 8,
                                 .patch = {.frames = 2, .height = 1, .width = 4},
                                 .side_max = 16};
  constexpr LatentFactors kFactors{.time = 4, .space = 8};
  const auto shape = LatentShape(kFlat, kFactors, {.height = 24, .width = 96, .frames = 13});
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_THAT(*shape, ElementsAre(4, 4, 3, 12));
  EXPECT_EQ(TokensOf(kFlat, *shape), 2 * 3 * 3);
  const auto why = [&](const PictureSize& size) {
    return std::string(LatentShape(kFlat, kFactors, size).status().message());
  };
  EXPECT_THAT(why({.height = 24, .width = 40}),
              HasSubstr("multiples of 8 and 32, at most 128, for this model: 24 x 40"));
  EXPECT_THAT(why({.frames = 9}), HasSubstr("8 k - 3 for this model: 9; the nearest are 5 and 13"));
  EXPECT_THAT(why({.frames = 1}), HasSubstr("8 k - 3 for this model: 1; the nearest is 5"));
}

TEST(ArchitectureTest, FramesAreTheFirstAndThoseOfEachFurtherLatentFrame) {
  constexpr LatentFactors kWan{.time = 4, .space = 8};
  for (const auto& [frames, latent] : {std::pair(1, 1), {5, 2}, {33, 9}, {81, 21}, {0, 5}}) {
    const auto shape = LatentShape(kVideos, kWan, {.height = 16, .width = 64, .frames = frames});
    ASSERT_TRUE(shape.ok()) << shape.status();
    EXPECT_THAT(*shape, ElementsAre(4, latent, 2, 8));
    const PictureSize decoded = DecodedSize(kWan, *shape);
    EXPECT_EQ(decoded.frames, frames == 0 ? 17 : frames);
    EXPECT_EQ(decoded.height, 16);
    EXPECT_EQ(decoded.width, 64);
  }
  EXPECT_EQ(DecodedSize({.space = 8}, {16, 64, 96}).frames, 0);
  EXPECT_THAT(*LatentShape(kVideos, {}, {.frames = 6}), ElementsAre(4, 6, 8, 8)) << "no decoder";
}

// Promise: A video autoencoder computes what diffusers' does.
TEST(ArchitectureTest, FramesThatDoNotFitAreRefusedWithTheNearestThatDo) {
  const auto why = [](const LatentGeometry& geometry, int64_t frames) {
    const auto shape = LatentShape(geometry, {.time = 4, .space = 8}, {.frames = frames});
    EXPECT_EQ(shape.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(shape.status().message());
  };
  EXPECT_THAT(why(kVideos, 32), HasSubstr("sampling.frames must be 4 k + 1 for this model: 32; "
                                          "the nearest are 29 and 33"));
  EXPECT_THAT(why(kVideos, 34), HasSubstr("33 and 37"));
  EXPECT_THAT(why(kVideos, 4), HasSubstr("1 and 5"));
  EXPECT_THAT(why(kVideos, 4'000'000'001), HasSubstr("at most 4096"));
  LatentGeometry limited = kVideos;
  limited.frames_max = 21;
  EXPECT_THAT(why(limited, 85), HasSubstr("at most 81"));
  EXPECT_THAT(why(kImages, 33), HasSubstr("sampling.frames must be 0"));
  EXPECT_THAT(why(kImages, 1), HasSubstr("sampling.frames must be 0"));
}

TEST(ArchitectureTest, AGraphSaysWhatTheNetworkTakes) {
  const auto sd3 = SmallSd3(/*blocks=*/2, /*dual=*/0);
  EXPECT_EQ(sd3->class_name(), "SD3Transformer2DModel");
  EXPECT_EQ(sd3->latent().side, 8);
  EXPECT_EQ(sd3->latent().side_max, 8);
  EXPECT_EQ(sd3->latent().dimensions(), 3);
  ASSERT_EQ(sd3->conditioning().size(), 2u);
  EXPECT_THAT(sd3->conditioning()[0].shape, ElementsAre(kPromptLength, 12));
  EXPECT_EQ(ConditioningBytes(sd3->conditioning(), 77), 4u * (77 * 12 + 10));
  EXPECT_THAT(sd3->buffers(), ElementsAre(kPositionTable));
  for (const std::string& name : sd3->buffers()) EXPECT_TRUE(sd3->shapes().contains(name));
}

TEST(ArchitectureTest, AConfigThatIsNotTheGraphsIsRefused) {
  ArchitectureSource source = testing::GraphSource(testing::kDigitsGraph);
  auto other = nlohmann::json::parse(source.config_json);
  other["qk_norm"] = "rms_norm";
  const auto refusal = [&](const std::string& config) {
    source.config_json = config;
    return std::string(ReadArchitecture(source).status().message());
  };
  EXPECT_THAT(refusal("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal(other.dump()), HasSubstr("qk_norm is \"rms_norm\", and the graph is for"));
  EXPECT_THAT(refusal("{}"), HasSubstr("attention_head_dim is 64, and the graph is for 16"));
}

}  // namespace
}  // namespace oxbow::model
