// SPDX-License-Identifier: Apache-2.0
#include "core/model/image_sampler.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace oxbow::model {
namespace {

// The exact field of data that is one constant image per prompt, tokens[0, 0]: v = (x - c) /
// sigma.
class ConstantData final : public VelocityModel {
 public:
  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const Conditioning& conditioning) const override {
    const at::Tensor constant =
        conditioning.at(kPromptTokens).select(1, 0).select(1, 0).view({-1, 1, 1, 1});
    EXPECT_EQ(constant.size(0), x.size(0));
    return (x - constant) / sigma.view({-1, 1, 1, 1});
  }
};

// v = x / 2: the image keeps the noise that it started from.
class KeepsNoise final : public VelocityModel {
 public:
  at::Tensor Predict(const at::Tensor& x, const at::Tensor&, const Conditioning&) const override {
    return 0.5 * x;
  }
};

class Rounding final : public ImageDecoder {
 public:
  at::Tensor Decode(const at::Tensor& latents) const override {
    return (255 * (latents / 2 + 0.5).clamp(0, 1)).round().to(at::kByte).permute({0, 2, 3, 1});
  }
};

flow::SamplingSpec TenSteps() {
  return OdeSpec(flow::SigmaGrid(flow::ScheduleKind::kLinspace, 10, 1.0));
}

TEST(ImageSamplerTest, EveryImageFollowsItsOwnConditioning) {
  const Conditioning prompts{{kPromptTokens, at::tensor({-1.0F, 0.0F, 1.0F}).view({3, 1, 1})},
                             {kPooledPrompt, at::zeros({3, 1})}};
  const auto images = SampleFrames(ConstantData(), Rounding(), TenSteps(),
                                   RequestsFor(prompts, 2, /*seed=*/1), {1, 2, 5});
  ASSERT_EQ(images.size(), 6);
  const std::vector<uint8_t> expected = {0, 0, 128, 128, 255, 255};
  for (size_t i = 0; i < 6; ++i) {
    ASSERT_EQ(images[i].size(), 1);
    EXPECT_EQ(images[i][0].height, 2);
    EXPECT_EQ(images[i][0].width, 5);
    ASSERT_EQ(images[i][0].pixels.size(), 10);
    // Float rounding of x - sigma v may fall on either side of 127.5.
    for (const uint8_t pixel : images[i][0].pixels) EXPECT_NEAR(pixel, expected[i], 1) << i;
  }
}

TEST(ImageSamplerTest, ImagesDoNotDependOnTheBatchTheyAreDrawnIn) {
  const Conditioning prompts{{kPromptTokens, at::zeros({4, 1, 1})},
                             {kPooledPrompt, at::zeros({4, 1})}};
  const auto requests = RequestsFor(prompts, 3, /*seed=*/7);
  const auto draw = [&](int64_t batch_max) {
    return SampleFrames(KeepsNoise(), Rounding(), TenSteps(), requests, {1, 4, 4}, batch_max);
  };
  const auto together = draw(64);
  EXPECT_EQ(together, draw(5));
  EXPECT_EQ(together, draw(1));
  EXPECT_NE(together[0], together[1]);
  EXPECT_NE(together[0], together[3]);
}

TEST(ImageSamplerTest, LargeVideosAreDrawnOneByOne) {
  EXPECT_EQ(SamplesAtOnce({16, 64, 64}), 64);
  EXPECT_EQ(SamplesAtOnce({1, 3, 8, 20}), 64);
  EXPECT_EQ(SamplesAtOnce({16, 3, 16, 16}), 2);
  EXPECT_EQ(SamplesAtOnce({16, 9, 30, 52}), 1);
}

// Frame f of sample b is of value 10 b + f.
// Promise: A video is a video everywhere.
TEST(ImageDecoderTest, TheFramesOfAVideoComeOutInOrder) {
  const at::Tensor value = at::arange(2).view({2, 1, 1, 1, 1}) * 10 + at::arange(3).view({3, 1, 1});
  const at::Tensor videos = (value / 127.5 - 1).expand({2, 3, 3, 4, 6});  // [B, C, F, H, W]
  const auto decoder = MakePixelDecoder();
  EXPECT_EQ(decoder->Decode(videos).sizes().vec(), (std::vector<int64_t>{2, 3, 4, 6, 3}));
  const auto samples = DecodeFrames(*decoder, videos);
  ASSERT_EQ(samples.size(), 2);
  for (int b = 0; b < 2; ++b) {
    ASSERT_EQ(samples[b].size(), 3);
    for (int f = 0; f < 3; ++f) {
      const Image8 expected{6, 4, 3, std::vector<uint8_t>(72, static_cast<uint8_t>(10 * b + f))};
      EXPECT_EQ(samples[b][f], expected) << b << " " << f;
    }
  }
}

// Promise: A video is a video everywhere.
TEST(ImageDecoderTest, AVideoOfOneFrameIsThePicture) {
  const at::Tensor pictures = at::linspace(-1.2, 1.2, 2 * 3 * 4 * 5).view({2, 3, 4, 5});
  const auto decoder = MakePixelDecoder();
  const at::Tensor decoded = decoder->Decode(pictures.unsqueeze(2));
  EXPECT_TRUE(at::equal(decoded.squeeze(1), decoder->Decode(pictures)));
  EXPECT_EQ(DecodeFrames(*decoder, pictures.unsqueeze(2)), DecodeFrames(*decoder, pictures));
}

}  // namespace
}  // namespace oxbow::model
