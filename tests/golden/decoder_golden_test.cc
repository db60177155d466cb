// SPDX-License-Identifier: Apache-2.0
// Exported graphs of autoencoders' decoders against diffusers' pipelines.
#include "tests/golden/decoder_golden.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/model/exported_graph/exported_decoder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/counting_allocator.h"

namespace oxbow::model::exported {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

// Both sides are float32 with sums in different orders; relative to the largest pixel.
constexpr double kTolerance = 1e-5;

class DecoderGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  DecoderGoldenTest() {
    const auto architecture = ReadDecoder(golden_.config, golden_.graph);
    EXPECT_TRUE(architecture.ok()) << architecture.status();
    architecture_ = *architecture;
    auto decoder = architecture_->Make(golden_.weights);
    EXPECT_TRUE(decoder.ok()) << decoder.status();
    decoder_ = *std::move(decoder);
  }
  at::Tensor Pixels(const at::Tensor& latents) const {
    return dynamic_cast<const ExportedDecoder&>(*decoder_).Pixels(latents);
  }

  const DecoderGolden golden_{GetParam()};
  std::shared_ptr<const DecoderArchitecture> architecture_;
  std::unique_ptr<ImageDecoder> decoder_;
};

// Promise: A decoder that is a graph makes diffusers' pictures. Pixels of small random
// autoencoders of SD3, FLUX.1, FLUX.2, HunyuanVideo, LTX-Video, Wan and Qwen-Image equal, within
// 1e-5, those of diffusers' pipelines for the latents that they end with, also of a video that is
// cut along time or decoded frame by frame. A row has its own bits.
TEST_P(DecoderGoldenTest, PixelsAreThoseOfDiffusersPipeline) {
  EXPECT_GE(golden_.cases, 2);
  for (int number = 0; number < golden_.cases; ++number) {
    const at::Tensor latents = golden_.Latents(number), golden = golden_.Pixels(number),
                     pixels = Pixels(latents);
    ASSERT_EQ(pixels.sizes(), golden.sizes());
    const double error = (pixels - golden).abs().max().item<double>();
    EXPECT_LE(error, kTolerance * std::max(1.0, golden.abs().max().item<double>()))
        << "case " << number;
    EXPECT_EQ(latents.size(1), architecture_->latent_channels());
    EXPECT_EQ(golden.size(-1), latents.size(-1) * architecture_->factors().space);
    if (latents.dim() == 4) continue;
    EXPECT_EQ(golden.size(2), 1 + (latents.size(2) - 1) * architecture_->factors().time);
  }
}

TEST_P(DecoderGoldenTest, BytesAreTheRoundedPixels) {
  for (int number = 0; number < golden_.cases; ++number) {
    const at::Tensor bytes = decoder_->Decode(golden_.Latents(number));
    const at::Tensor golden = ((golden_.Pixels(number) / 2 + 0.5).clamp(0, 1) * 255).movedim(1, -1);
    ASSERT_EQ(bytes.scalar_type(), at::kByte);
    ASSERT_EQ(bytes.sizes(), golden.sizes());
    EXPECT_LE((bytes.to(at::kFloat) - golden).abs().max().item<double>(), 0.5 + 5e-3);
  }
}

// Promise: A decoder that is a graph makes diffusers' pictures.
TEST_P(DecoderGoldenTest, ARowHasItsOwnBitsAndAPictureIsOneFrame) {
  const at::Tensor two = golden_.Latents(0);
  ASSERT_EQ(two.size(0), 2);
  const at::Tensor bytes = decoder_->Decode(two);
  EXPECT_TRUE(at::equal(Pixels(two.narrow(0, 1, 1)), Pixels(two).narrow(0, 1, 1)));
  if (two.dim() == 4) return;
  EXPECT_TRUE(at::equal(decoder_->Decode(two.squeeze(2)), bytes.squeeze(1)));
}

// Promise: A video autoencoder computes what diffusers' does. Small random autoencoders of Wan2.1,
// Wan2.2 and Qwen-Image decode frame by frame what diffusers' do, within 1e-5, at several lengths.
// The first frames of a longer video and each row of a batch have the same bits alone. Memory
// beside the video does not grow with its length. A state that is missing or of another size is
// refused by its name.
TEST_P(DecoderGoldenTest, FrameByFrameALaterFrameChangesNoEarlierOne) {
  const at::Tensor latents = golden_.Latents(golden_.cases - 1);
  if (!json::parse(golden_.graph).contains("next") || latents.dim() == 4) return;
  ASSERT_GE(latents.size(2), 3);
  const at::Tensor all = decoder_->Decode(latents);
  for (const int64_t frames : {1, 2, 3}) {
    const at::Tensor first = decoder_->Decode(latents.narrow(2, 0, frames));
    EXPECT_EQ(first.size(1), 1 + (frames - 1) * architecture_->factors().time);
    EXPECT_TRUE(at::equal(first, all.narrow(1, 0, first.size(1)))) << frames;
  }
}

TEST_P(DecoderGoldenTest, TheDecodersTensorsAreThoseThatItsGraphReads) {
  const Shapes shapes = architecture_->shapes();
  size_t read = 0;
  for (const auto& [name, shape] : shapes) read += architecture_->InDecoder(name) ? 1 : 0;
  EXPECT_EQ(read, golden_.weights.size());
  EXPECT_TRUE(shapes.contains("encoder.conv_in.weight") ||
              shapes.contains("encoder.conv_in.conv.weight"));
  EXPECT_FALSE(architecture_->InDecoder("bn.num_batches_tracked"));
  NamedTensors fewer = golden_.weights;
  const std::string name = fewer.begin()->first;
  fewer.erase(name);
  EXPECT_THAT(std::string(architecture_->Make(fewer).status().message()), HasSubstr(name));
}

TEST_P(DecoderGoldenTest, AnotherConfigOrGraphIsRefusedByItsKey) {
  const auto refusal = [&](const std::string& config, const std::string& graph) {
    const absl::Status status = ReadDecoder(config, graph).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  const auto with = [&](const char* key, const json& value) {
    json graph = json::parse(golden_.graph);
    graph["decoder"][key] = value;
    return graph.dump();
  };
  json config = json::parse(golden_.config);
  EXPECT_THAT(refusal(golden_.config, ""), HasSubstr("graph: not a JSON object"));
  const char* channels = config.contains("latent_channels") ? "latent_channels" : "z_dim";
  config[channels] = 77;
  EXPECT_THAT(refusal(config.dump(), golden_.graph), HasSubstr(channels));
  EXPECT_THAT(refusal(golden_.config, with("space", 3)), HasSubstr("decoder: pixels are [1, 3,"));
  EXPECT_THAT(refusal(golden_.config, with("space", 0)), HasSubstr("decoder.space"));
  EXPECT_THAT(refusal(golden_.config, with("time", 9)), HasSubstr("decoder"));
  EXPECT_THAT(refusal(golden_.config, with("tile", {{"frames", 7}, {"stride", 8}})),
              HasSubstr("decoder.tile"));
  EXPECT_THAT(refusal(golden_.config, with("speed", 1)), HasSubstr("decoder"));
  json graph = json::parse(golden_.graph);
  graph.erase("decoder");
  EXPECT_THAT(refusal(golden_.config, graph.dump()), HasSubstr("not an autoencoder's graph"));
}

INSTANTIATE_TEST_SUITE_P(Decoders, DecoderGoldenTest, ::testing::ValuesIn(DecoderNames()),
                         [](const auto& info) { return info.param; });

// Factors and channels of the published autoencoders, and of each the graphs that come with oxbow.
TEST(PublishedDecodersTest, ShippedGraphsFitTheConfigsThatTheyName) {
  struct Published {
    const char* class_name;
    size_t graphs;
    int64_t channels, time, space;
  };
  for (const Published& published :
       {Published{"AutoencoderKL", 2, 16, 1, 8}, Published{"AutoencoderKLFlux2", 2, 128, 1, 16},
        Published{"AutoencoderKLHunyuanVideo", 1, 16, 4, 8},
        Published{"AutoencoderKLLTXVideo", 3, 128, 8, 32},
        Published{"AutoencoderKLWan", 1, 16, 4, 8},
        Published{"AutoencoderKLQwenImage", 1, 16, 4, 8}}) {
    const io::GraphFiles files = io::FindGraphFiles({.class_name = published.class_name,
                                                     .directory = {},
                                                     .config_json = {},
                                                     .weights_base = {}});
    EXPECT_EQ(files.shipped.size(), published.graphs);
    for (const fs::path& path : files.shipped) {
      const std::string graph = *io::ReadGraphFile(path);
      json config = json::parse(graph)["config"];
      config["_class_name"] = published.class_name;
      const auto decoder = ReadDecoder(config.dump(), graph);
      ASSERT_TRUE(decoder.ok()) << path << ": " << decoder.status();
      EXPECT_EQ((*decoder)->latent_channels(), published.channels) << path;
      EXPECT_EQ((*decoder)->factors().time, published.time) << path;
      EXPECT_EQ((*decoder)->factors().space, published.space) << path;
    }
  }
}

// The published vae/config.json says more than decoding depends on, and names no class in some
// files.
TEST(PublishedDecodersTest, SizesOfTrainingPicturesAndNotesDoNotChooseTheGraph) {
  const DecoderGolden golden("kl_decoder_sd3");
  json config = json::parse(golden.config);
  config.erase("_class_name");
  config["sample_size"] = 1234;
  config["force_upcast"] = false;
  EXPECT_EQ((*ReadDecoder(config.dump(), golden.graph))->class_name(), "AutoencoderKL");
  config["latents_mean"] = {0.5};
  EXPECT_THAT(std::string(ReadDecoder(config.dump(), golden.graph).status().message()),
              HasSubstr("latents_mean"));
}

// Promise: A decoder that is a graph makes diffusers' pictures.
TEST(PublishedDecodersTest, OnACpuMemoryDoesNotGrowWithTheRows) {
  testing::CountingAllocator::Install();
  const DecoderGolden golden("kl_decoder_sd3");
  const auto decoder = *(*ReadDecoder(golden.config, golden.graph))->Make(golden.weights);
  testing::CountingAllocator& memory = testing::CountingAllocator::Get();
  const auto beside_the_pictures = [&](int64_t rows) {
    const at::Tensor latents = at::zeros({rows, 4, 4, 4});
    memory.Reset();
    const int64_t before = memory.alive();
    const at::Tensor pictures = decoder->Decode(latents);
    return memory.most() - before - 2 * pictures.numel();  // Rows, and all of them joined.
  };
  EXPECT_LE(beside_the_pictures(12), beside_the_pictures(1) + 4096);
}

}  // namespace
}  // namespace oxbow::model::exported
