// SPDX-License-Identifier: Apache-2.0
// The configs of video autoencoders, and the memory that a long video takes. Values are compared
// with diffusers' in tests/golden.
#include "core/model/autoencoder_kl_wan.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "base/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/counting_allocator.h"

namespace oxbow::model {
namespace {

using ::oxbow::testing::CountingAllocator;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// vae/config.json of Wan2.1.
Json Published() {
  return Json::parse(R"({
      "_class_name": "AutoencoderKLWan", "_diffusers_version": "0.33.0.dev0", "attn_scales": [],
      "base_dim": 96, "dim_mult": [1, 2, 4, 4], "dropout": 0.0,
      "latents_mean": [-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508,
                       0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921],
      "latents_std": [2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743,
                      3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160],
      "num_res_blocks": 2, "temperal_downsample": [false, true, true], "z_dim": 16})");
}

Json Small() {
  return {{"base_dim", 4},
          {"dim_mult", {1, 2}},
          {"temperal_downsample", {true}},
          {"num_res_blocks", 1},
          {"z_dim", 2},
          {"latents_mean", {0.5, -0.5}},
          {"latents_std", {1.5, 0.75}}};
}

std::string RefusalOf(const Json& config) {
  const auto params = ParseAutoencoderKlWanConfig(config.dump());
  EXPECT_EQ(params.status().code(), absl::StatusCode::kInvalidArgument) << config;
  return std::string(params.status().message());
}

std::unique_ptr<AutoencoderKlWan> RandomModel(const AutoencoderKlWanParams& params) {
  RandomStream random({.seed = 6});
  NamedTensors weights;
  for (const auto& [name, shape] : AutoencoderKlWanDecoderShapes(params)) {
    at::Tensor tensor = at::empty(shape, at::kFloat);
    random.FillNormal(std::span<float>(tensor.mutable_data_ptr<float>(), tensor.numel()));
    weights[name] = tensor * 0.2;
  }
  return *MakeAutoencoderKlWan(params, weights);
}

// Promise: A video autoencoder computes what diffusers' does.

TEST(AutoencoderKlWanTest, ThePublishedConfigIsTheDefault) {
  const auto params = ParseAutoencoderKlWanConfig(Published().dump());
  ASSERT_TRUE(params.ok()) << params.status();
  const auto defaults = *ParseAutoencoderKlWanConfig("{}");
  EXPECT_EQ(params->latents_mean, defaults.latents_mean);
  EXPECT_EQ(params->latents_std, defaults.latents_std);
  EXPECT_EQ(AutoencoderKlWanShapes(*params), AutoencoderKlWanShapes(defaults));
  EXPECT_EQ(params->space_factor(), 8);
  EXPECT_EQ(params->time_factor(), 4);
}

TEST(AutoencoderKlWanTest, TheDecoderIsAPartOfTheCheckpoint) {
  const auto params = *ParseAutoencoderKlWanConfig(Small().dump());
  const Shapes all = AutoencoderKlWanShapes(params);
  for (const auto& [name, shape] : AutoencoderKlWanDecoderShapes(params)) {
    ASSERT_TRUE(all.contains(name)) << name;
    EXPECT_EQ(all.at(name), shape);
    EXPECT_TRUE(name.starts_with("decoder.") || name.starts_with("post_quant_conv.")) << name;
  }
}

TEST(AutoencoderKlWanTest, BadConfigsAreRefusedByTheirKey) {
  const std::vector<std::pair<std::string, Json>> changes = {{"is_residual", true},
                                                             {"patch_size", 2},
                                                             {"attn_scales", {1.0}},
                                                             {"scale_factor_temporal", 4},
                                                             {"scale_factor_spatial", 8},
                                                             {"latents_mean", {1.0}},
                                                             {"latents_std", {0.0, 1.0}},
                                                             {"z_dim", 3},
                                                             {"z_dim", 0},
                                                             {"base_dim", 1.5},
                                                             {"base_dim", 1 << 20},
                                                             {"dim_mult", Json::array()},
                                                             {"dim_mult", {1, 2, 4}},
                                                             {"dim_mult", {1, 0}},
                                                             {"temperal_downsample", {1}},
                                                             {"num_res_blocks", -1},
                                                             {"unheard_of", 1}};
  for (const auto& [key, value] : changes) {
    Json config = Small();
    config[key] = value;
    EXPECT_THAT(RefusalOf(config), HasSubstr(key)) << config;
  }
  Json config = Small();
  config["base_dim"] = 1;
  config["dim_mult"] = {1, 1};
  EXPECT_THAT(RefusalOf(config), HasSubstr("cannot be halved"));
  EXPECT_EQ(ParseAutoencoderKlWanConfig("[]").status().code(), absl::StatusCode::kInvalidArgument);
}

// Every key with values of other kinds: refused as a config, or one whose shapes can be listed.
TEST(AutoencoderKlWanTest, NoConfigIsMoreThanRefused) {
  const Json values = {nullptr,       true,   false,      -1,           0,      1,
                       2.5,           1e300,  1ull << 63, "",           "text", Json({}),
                       Json::array(), {1, 2}, {true},     {nullptr, 1}, {{}},   {"a"},
                       {1e300, 1}};
  Json keys = Published();
  keys.update(Json{{"decoder_base_dim", 1},
                   {"is_residual", 1},
                   {"patch_size", 1},
                   {"input_channels", 1},
                   {"in_channels", 1},
                   {"out_channels", 1},
                   {"scale_factor_spatial", 1},
                   {"scale_factor_temporal", 1}});
  int accepted = 0;
  for (const auto& [key, unused] : keys.items()) {
    for (const Json& value : values) {
      Json config = Small();
      config[key] = value;
      const auto params = ParseAutoencoderKlWanConfig(config.dump());
      if (params.ok()) {
        EXPECT_FALSE(AutoencoderKlWanShapes(*params).empty()) << config;
        ++accepted;
      } else {
        EXPECT_EQ(params.status().code(), absl::StatusCode::kInvalidArgument) << config;
      }
    }
  }
  EXPECT_GT(accepted, 20);
}

TEST(DecoderTableTest, TheConfigsClassChoosesTheRow) {
  const auto named = [](const std::string& name, Json config) {
    config["_class_name"] = name;
    return ReadDecoder(config.dump());
  };
  for (const char* name : {"AutoencoderKLWan", "AutoencoderKLQwenImage"}) {
    const auto decoder = named(name, Small());
    ASSERT_TRUE(decoder.ok()) << decoder.status();
    EXPECT_EQ((*decoder)->class_name(), name);
    EXPECT_EQ((*decoder)->latent_channels(), 2);
    EXPECT_EQ((*decoder)->factors().time, 2);
    EXPECT_EQ((*decoder)->factors().space, 2);
  }
  EXPECT_EQ(*DecoderClassOf("{}"), "AutoencoderKL");
  EXPECT_TRUE(IsNativeDecoder("AutoencoderKLWan"));
  EXPECT_FALSE(IsNativeDecoder("AutoencoderTiny"));
  EXPECT_FALSE(IsNativeDecoder(""));
  EXPECT_THAT(std::string(named("AutoencoderTiny", {}).status().message()),
              HasSubstr("export_model export AutoencoderTiny --config"));
  EXPECT_THAT(std::string(ReadDecoder(R"({"_class_name": 3})").status().message()),
              HasSubstr("_class_name is no name: 3"));
}

TEST(AutoencoderKlWanTest, MemoryDoesNotGrowWithTheLength) {
  CountingAllocator::Install();
  const c10::InferenceMode no_gradients;
  const auto model = RandomModel(*ParseAutoencoderKlWanConfig(Small().dump()));
  CountingAllocator& memory = CountingAllocator::Get();
  const auto beside_the_video = [&](int64_t length) {
    const at::Tensor z = at::zeros({2, 2, length, 8, 6});
    memory.Reset();
    const int64_t before = memory.alive();
    const at::Tensor video = model->Decode(z);
    return memory.most() - before - video.numel();
  };
  const int64_t few = beside_the_video(3), many = beside_the_video(60);
  const int64_t map = int64_t{4} * 4 * 2 * 16 * 12;  // Two frames of the finest level, in bytes.
  EXPECT_GT(few, map);
  EXPECT_LE(few, 64 * map) << "27 of them are the columns of PyTorch's convolution of small maps";
  EXPECT_LE(many, few + 1024);
}

}  // namespace
}  // namespace oxbow::model
