// SPDX-License-Identifier: Apache-2.0
// What a decoder of a published size takes on a GPU, against what `oxbow validate` says of it: on a
// dry device, which counts the bytes of shapes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "core/model/decoder_architecture.h"
#include "core/model/image_decoder.h"
#include "io/graph_files.h"
#include "tests/rehearsal/device_memory.h"
#include "tests/rehearsal/settings.h"

namespace oxbow::rehearsal {
namespace {

// vae/config.json of stabilityai/stable-diffusion-3.5-medium; FLUX.1-dev's differs in its scales.
constexpr char kImages[] = R"({"_class_name": "AutoencoderKL",
  "block_out_channels": [128, 256, 512, 512], "layers_per_block": 2, "latent_channels": 16,
  "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D",
                       "DownEncoderBlock2D"],
  "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D",
                     "UpDecoderBlock2D"],
  "in_channels": 3, "out_channels": 3, "norm_num_groups": 32, "sample_size": 1024,
  "scaling_factor": 1.5305, "shift_factor": 0.0609,
  "use_post_quant_conv": false, "use_quant_conv": false})";
// Wan2.1's, with the values that the class has by itself; Qwen-Image's has the same sizes.
constexpr char kVideos[] = R"({"_class_name": "AutoencoderKLWan"})";

struct Autoencoder {
  std::string config;
  std::string graph;  // Empty for a class that needs none.
};

// A shipped graph, with its config.
Autoencoder Shipped(const std::string& file) {
  const auto json = io::ReadGraphFile(OXBOW_SOURCE_DIR "/models/graphs/" + file);
  OXBOW_CHECK(json.ok()) << json.status().ToString();
  const auto graph = nlohmann::json::parse(*json);
  nlohmann::json config = graph["config"];
  config["_class_name"] = graph["class"];
  return {config.dump(), *json};
}

struct Case {
  std::string name;
  std::function<Autoencoder()> autoencoder;
  std::vector<int64_t> latent;
  int64_t rows;
};

void PrintTo(const Case& decoding, std::ostream* out) { *out << decoding.name; }

class DecodingMemoryTest : public ::testing::TestWithParam<Case> {};

TEST_P(DecodingMemoryTest, IsWhatIsSaidOfIt) {
  TheSettings().mode = Mode::kDry;
  const Autoencoder autoencoder = GetParam().autoencoder();
  const auto decoder = model::ReadDecoder(autoencoder.config, autoencoder.graph);
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  model::NamedTensors weights;
  for (const auto& [name, shape] : (*decoder)->shapes()) {
    if ((*decoder)->InDecoder(name)) {
      weights[name] = at::empty(shape, at::TensorOptions().dtype(at::kFloat).device(at::kCUDA));
    }
  }
  const auto made = (*decoder)->Make(weights);
  ASSERT_TRUE(made.ok()) << made.status();
  std::vector<int64_t> shape = GetParam().latent;
  shape.insert(shape.begin(), GetParam().rows);
  DeviceMemory& memory = DeviceMemory::Of(0);
  memory.ResetPeak();
  const size_t held = memory.Use().held;
  (void)model::DecodeFrames(**made, at::zeros(shape));
  const auto peak = static_cast<double>(memory.Use().peak - held);
  const auto said = static_cast<double>(
      (*decoder)->DecodingBytes(GetParam().latent, GetParam().rows, /*on_cpu=*/false));
  EXPECT_NEAR(said / peak, 1, 0.05) << said << " said, " << peak << " taken";
}

Autoencoder Images() { return {kImages, ""}; }
Autoencoder Videos() { return {kVideos, ""}; }
Autoencoder Flux2() { return Shipped("AutoencoderKLFlux2-flux.2.json.gz"); }
Autoencoder Hunyuan() { return Shipped("AutoencoderKLHunyuanVideo-hunyuan-video-decoder.json.gz"); }
Autoencoder Ltx() { return Shipped("AutoencoderKLLTXVideo-ltx-video-0.9.1.json.gz"); }

INSTANTIATE_TEST_SUITE_P(
    PublishedSizes, DecodingMemoryTest,
    ::testing::Values(Case{"OneImageOf512", Images, {16, 64, 64}, 1},
                      Case{"MoreImagesThanAreDecodedAtOnce", Images, {16, 16, 16}, 20},
                      Case{"AWideImage", Images, {16, 16, 48}, 1},
                      Case{"AClipOf33Frames", Videos, {16, 9, 30, 52}, 2},
                      Case{"AClipOf5Frames", Videos, {16, 2, 60, 104}, 1},
                      Case{"ImagesOfADecoderOfVideos", Videos, {16, 64, 64}, 4},
                      Case{"ImagesByAGraph", Flux2, {128, 32, 32}, 3},
                      Case{"AClipByAGraph", Ltx, {128, 5, 16, 24}, 2},
                      Case{"AClipInTilesOfAGraph", Hunyuan, {16, 9, 32, 52}, 1}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace oxbow::rehearsal
