// SPDX-License-Identifier: Apache-2.0
#include "core/model/autoencoder_kl.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace oxbow::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// vae/config.json of Stable Diffusion 3.5.
constexpr char kPublished[] = R"({
  "_class_name": "AutoencoderKL", "_diffusers_version": "0.30.3.dev0", "act_fn": "silu",
  "block_out_channels": [128, 256, 512, 512],
  "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D",
                       "DownEncoderBlock2D"],
  "force_upcast": true, "in_channels": 3, "latent_channels": 16, "latents_mean": null,
  "latents_std": null, "layers_per_block": 2, "mid_block_add_attention": true,
  "norm_num_groups": 32, "out_channels": 3, "sample_size": 1024, "scaling_factor": 1.5305,
  "shift_factor": 0.0609,
  "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D",
                     "UpDecoderBlock2D"],
  "use_post_quant_conv": false, "use_quant_conv": false})";

constexpr char kSmall[] = R"({
  "block_out_channels": [4, 8], "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D"],
  "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D"], "norm_num_groups": 2,
  "latent_channels": 2, "scaling_factor": 1.5, "shift_factor": 0.25})";

at::Tensor Draw(at::IntArrayRef shape, RandomStream& random) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  random.FillNormal(std::span<float>(tensor.mutable_data_ptr<float>(), tensor.numel()));
  return tensor;
}

NamedTensors RandomWeights(const AutoencoderKlParams& params, AutoencoderPart part) {
  RandomStream random({.seed = 5});
  NamedTensors weights;
  for (const auto& [name, shape] : AutoencoderKlShapes(params, part)) {
    weights[name] = Draw(shape, random) * 0.3;
  }
  return weights;
}

TEST(AutoencoderKlTest, StableDiffusionsAutoencoderHasThePublishedTensors) {
  const AutoencoderKlParams params = ParseAutoencoderKlConfig(kPublished).value();
  EXPECT_EQ(params.factor(), 8);
  const Shapes shapes = AutoencoderKlShapes(params, AutoencoderPart::kWhole);
  int64_t elements = 0;
  for (const auto& [name, shape] : shapes) {
    int64_t numel = 1;
    for (const int64_t size : shape) numel *= size;
    elements += numel;
  }
  EXPECT_EQ(shapes.size(), 244u);
  EXPECT_EQ(elements, 83'819'683);
  size_t decoder = 0;
  for (const auto& [name, shape] : shapes) decoder += BelongsTo(AutoencoderPart::kDecoder, name);
  EXPECT_EQ(AutoencoderKlShapes(params, AutoencoderPart::kDecoder).size(), decoder);
}

TEST(AutoencoderKlTest, DecodesEachRowAloneAndOnlyWithTheDecodersWeights) {
  const at::NoGradGuard no_grad;
  const AutoencoderKlParams params = ParseAutoencoderKlConfig(kSmall).value();
  NamedTensors weights = RandomWeights(params, AutoencoderPart::kWhole);
  const auto whole = MakeAutoencoderKl(params, weights, AutoencoderPart::kWhole).value();
  std::erase_if(weights, [](const auto& named) {
    return !BelongsTo(AutoencoderPart::kDecoder, named.first);
  });
  const auto decoder = MakeAutoencoderKl(params, weights, AutoencoderPart::kDecoder).value();
  RandomStream random({.seed = 6});
  const at::Tensor z = Draw({3, 2, 4, 6}, random);
  const at::Tensor images = whole->Images(z);
  EXPECT_EQ(images.sizes(), at::IntArrayRef({3, 3, 8, 12}));
  EXPECT_TRUE(at::equal(decoder->Images(z), images));
  EXPECT_TRUE(at::equal(whole->Images(z.narrow(0, 1, 2)), images.narrow(0, 1, 2)));
  const at::Tensor bytes = decoder->Decode(z);
  EXPECT_EQ(bytes.sizes(), at::IntArrayRef({3, 8, 12, 3}));
  EXPECT_TRUE(at::equal(bytes, ToBytes(images)));
}

TEST(AutoencoderKlTest, GradientsReachTheLatents) {
  const AutoencoderKlParams params = ParseAutoencoderKlConfig(kSmall).value();
  const auto model = MakeAutoencoderKl(params, RandomWeights(params, AutoencoderPart::kDecoder),
                                       AutoencoderPart::kDecoder)
                         .value();
  RandomStream random({.seed = 7});
  at::Tensor z = Draw({2, 2, 2, 2}, random);
  z.requires_grad_(true);
  model->Images(z).square().sum().backward();
  EXPECT_GT(z.grad().abs().min().item<double>(), 0);
}

TEST(AutoencoderKlTest, TensorsThatDoNotFitAreNamed) {
  const AutoencoderKlParams params = ParseAutoencoderKlConfig(kSmall).value();
  NamedTensors weights = RandomWeights(params, AutoencoderPart::kWhole);
  weights.erase("quant_conv.bias");
  weights["decoder.conv_in.weight"] = at::zeros({8, 4, 3, 3});
  weights["stray"] = at::zeros({1});
  const auto status = MakeAutoencoderKl(params, weights, AutoencoderPart::kWhole).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("missing: quant_conv.bias"), HasSubstr("unexpected: stray"),
                    HasSubstr("decoder.conv_in.weight [8,4,3,3] instead of [8,2,3,3]")));
}

TEST(AutoencoderKlTest, WhatAConfigAsksForAndIsNotThereIsRefusedByName) {
  for (const auto& [config, name] : std::vector<std::pair<const char*, const char*>>{
           {R"({"latent_chanels": 4})", "latent_chanels"},
           {R"({"act_fn": "gelu"})", "act_fn"},
           {R"({"latents_mean": [0.1]})", "latents_mean"},
           {R"({"down_block_types": ["AttnDownEncoderBlock2D"]})", "AttnDownEncoderBlock2D"},
           {R"({"block_out_channels": [32, 64]})", "differ in length"},
           {R"({"block_out_channels": [48]})", "norm_num_groups"},
           {R"({"block_out_channels": [-32]})", "block_out_channels"},
           {R"({"scaling_factor": 0})", "scaling_factor"},
           {R"({"scaling_factor": "1"})", "scaling_factor"},
           {R"({"use_quant_conv": 1})", "use_quant_conv"},
           {"[]", "JSON object"}}) {
    const auto status = ParseAutoencoderKlConfig(config).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << config;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name)) << config;
  }
  EXPECT_TRUE(ParseAutoencoderKlConfig("{}").ok());
}

}  // namespace
}  // namespace oxbow::model
