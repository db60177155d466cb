// SPDX-License-Identifier: Apache-2.0
// Files of PEFT and diffusers, and of kohya and ComfyUI as diffusers reads them, change weights as
// those tools say (tools/make_adapter_file_goldens.py); what would change another thing is refused.
#include "io/adapter_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/file.h"
#include "io/adapter_names.h"
#include "io/lora_file.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const fs::path kGoldens = OXBOW_SOURCE_DIR "/tests/golden/adapter_files";

TensorBytes Floats(std::vector<int64_t> shape, const std::vector<float>& values) {
  TensorBytes tensor{.dtype = DType::kF32, .shape = std::move(shape)};
  tensor.data.assign(reinterpret_cast<const char*>(values.data()), 4 * values.size());
  return tensor;
}

std::vector<float> ValuesOf(const TensorBytes& tensor) {
  std::vector<float> values(tensor.data.size() / sizeof(float));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

// scale B A, summed in float64.
std::vector<double> Change(const StoredAdapter::Module& module) {
  const std::vector<float> a = ValuesOf(module.a);
  const std::vector<float> b = ValuesOf(module.b);
  const int64_t rank = module.a.shape[0];
  const int64_t columns = module.a.shape[1];
  std::vector<double> sums(static_cast<size_t>(module.b.shape[0] * columns));
  for (int64_t i = 0; i < module.b.shape[0]; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      double& sum = sums[static_cast<size_t>(i * columns + j)];
      for (int64_t k = 0; k < rank; ++k) {
        sum += static_cast<double>(b[static_cast<size_t>(i * rank + k)]) *
               a[static_cast<size_t>(k * columns + j)] * module.scale;
      }
    }
  }
  return sums;
}

AdaptedNetwork NetworkOf(const Safetensors& expected) {
  AdaptedNetwork network{.transformer_class = expected.metadata.at("class"), .tensors = {}};
  const auto shapes = nlohmann::json::parse(expected.metadata.at("network"));
  for (const auto& [name, shape] : shapes.items()) {
    network.tensors[name] = {.dtype = DType::kF32, .shape = shape.get<std::vector<int64_t>>()};
  }
  return network;
}

class AdapterFileGoldenTest : public ::testing::TestWithParam<std::string> {};

// Promise: An adapter of any tool is what that tool says. Files of PEFT, diffusers, kohya and
// ComfyUI, in 16 and 32 bits, with their alphas and patterns, change every weight as their own
// loader does, to rounding. A key that would change the result otherwise is refused by its name.
// With a smaller rank, or fewer modules, the rest adds nothing.
TEST_P(AdapterFileGoldenTest, ChangesTheWeightsAsItsOwnToolSays) {
  const auto expected = ReadSafetensors(kGoldens / GetParam() / "expected.safetensors").value();
  const fs::path directory = kGoldens / GetParam();
  const bool peft = fs::exists(directory / "adapter_model.safetensors");
  const auto adapter = ReadAdapter(peft ? directory / "adapter_model.safetensors"
                                        : directory / "pytorch_lora_weights.safetensors",
                                   NetworkOf(expected));
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  std::vector<std::string> ours, theirs;
  for (const auto& [module, matrices] : adapter->modules) ours.push_back(module + ".weight");
  for (const auto& [name, tensor] : expected.tensors) theirs.push_back(name);
  EXPECT_EQ(ours, theirs);
  for (const auto& [module, matrices] : adapter->modules) {
    const std::vector<double> change = Change(matrices);
    const std::vector<float> right = ValuesOf(expected.tensors.at(module + ".weight"));
    ASSERT_EQ(change.size(), right.size()) << module;
    for (size_t i = 0; i < change.size(); ++i) {
      ASSERT_NEAR(change[i], right[i], 2e-6 * std::max(1.0, std::abs(change[i]))) << module;
    }
  }
}

std::vector<std::string> GoldenCases() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kGoldens)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Tools, AdapterFileGoldenTest, ::testing::ValuesIn(GoldenCases()),
                         [](const auto& info) { return info.param; });

// A FLUX.1 of one block of each kind, two wide.
AdaptedNetwork SmallFlux() {
  AdaptedNetwork network{.transformer_class = "FluxTransformer2DModel", .tensors = {}};
  for (const char* const module :
       {"transformer_blocks.0.attn.to_q", "transformer_blocks.0.attn.to_k",
        "transformer_blocks.0.attn.to_v", "single_transformer_blocks.0.attn.to_q",
        "single_transformer_blocks.0.attn.to_k", "single_transformer_blocks.0.attn.to_v"}) {
    network.tensors[std::string(module) + ".weight"] = {.dtype = DType::kF32, .shape = {2, 2}};
  }
  network.tensors["single_transformer_blocks.0.proj_mlp.weight"] = {.dtype = DType::kF32,
                                                                    .shape = {4, 2}};
  network.tensors["norm_out.linear.weight"] = {.dtype = DType::kF32, .shape = {4, 2}};
  return network;
}

Safetensors Pair(const std::string& module, int64_t rows = 2, const char* down = ".lora_A.weight",
                 const char* up = ".lora_B.weight") {
  std::vector<float> values(static_cast<size_t>(rows));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
  return {.tensors = {{module + down, Floats({1, 2}, {3, 4})},
                      {module + up, Floats({rows, 1}, values)}},
          .metadata = {}};
}

TEST(AdapterFileTest, EveryToolsNameIsItsModule) {
  for (const char* const name :
       {"transformer_blocks.0.attn.to_q", "transformer.transformer_blocks.0.attn.to_q",
        "diffusion_model.transformer_blocks.0.attn.to_q",
        "model.diffusion_model.transformer_blocks.0.attn.to_q",
        "base_model.model.transformer_blocks.0.attn.to_q",
        "base_model.model.transformer.transformer_blocks.0.attn.to_q",
        "lora_transformer_transformer_blocks_0_attn_to_q",
        "lora_unet_transformer_blocks_0_attn_to_q", "lycoris_transformer_blocks_0_attn_to_q"}) {
    for (const auto& [down, up] : std::vector<std::pair<const char*, const char*>>{
             {".lora_A.weight", ".lora_B.weight"},
             {".lora_A.default.weight", ".lora_B.default.weight"},
             {".lora_down.weight", ".lora_up.weight"},
             {".lora.down.weight", ".lora.up.weight"}}) {
      const auto adapter = ParseAdapter(Pair(name, 2, down, up), "", SmallFlux());
      ASSERT_TRUE(adapter.ok()) << name << down << ": " << adapter.status();
      EXPECT_EQ(adapter->modules.begin()->first, "transformer_blocks.0.attn.to_q");
      EXPECT_EQ(adapter->modules.begin()->second.scale, 1);
    }
  }
}

TEST(AdapterFileTest, AJoinedModuleIsSplitAndSwappedHalvesAreSwappedBack) {
  const auto joined =
      ParseAdapter(Pair("lora_unet_single_blocks_0_linear1", 10), "", SmallFlux()).value();
  ASSERT_EQ(joined.modules.size(), 4u);
  EXPECT_EQ(ValuesOf(joined.modules.at("single_transformer_blocks.0.attn.to_k").b),
            (std::vector<float>{3, 4}));
  EXPECT_EQ(ValuesOf(joined.modules.at("single_transformer_blocks.0.proj_mlp").b),
            (std::vector<float>{7, 8, 9, 10}));
  const auto swapped =
      ParseAdapter(Pair("diffusion_model.final_layer.adaLN_modulation.1", 4), "", SmallFlux());
  EXPECT_EQ(ValuesOf(swapped->modules.at("norm_out.linear").b), (std::vector<float>{3, 4, 1, 2}));
}

TEST(AdapterFileTest, SixteenBitsAreTheSameValuesInFloat32) {
  const std::vector<uint16_t> half = {0x3c00, 0xc000, 0x0001, 0x7bff};   // 1, -2, 2^-24, 65504
  const std::vector<uint16_t> brain = {0x3f80, 0xc000, 0x0080, 0x4780};  // 1, -2, 2^-126, 65536
  for (const auto& [dtype, bits, last] :
       std::vector<std::tuple<DType, std::vector<uint16_t>, std::vector<float>>>{
           {DType::kF16, half, {1, -2, 0x1p-24f, 65504}},
           {DType::kBF16, brain, {1, -2, 0x1p-126f, 65536}}}) {
    Safetensors file = Pair("transformer_blocks.0.attn.to_q");
    TensorBytes a{.dtype = dtype, .shape = {2, 2}};
    a.data.assign(reinterpret_cast<const char*>(bits.data()), 8);
    file.tensors["transformer_blocks.0.attn.to_q.lora_A.weight"] = a;
    file.tensors["transformer_blocks.0.attn.to_q.lora_B.weight"] = Floats({2, 2}, {1, 2, 3, 4});
    const auto adapter = ParseAdapter(file, "", SmallFlux());
    ASSERT_TRUE(adapter.ok()) << adapter.status();
    EXPECT_EQ(ValuesOf(adapter->modules.begin()->second.a), last);
  }
}

// Promise: An adapter of any tool is what that tool says.
TEST(AdapterFileTest, WhatWouldChangeAnotherThingIsRefusedByItsName) {
  const std::string module = "transformer.transformer_blocks.0.attn.to_q";
  const auto refusal = [](const Safetensors& file, const std::string& config = "") {
    const absl::Status status = ParseAdapter(file, config, SmallFlux()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return std::string(status.message());
  };
  for (const auto& [name, word] : std::vector<std::pair<std::string, const char*>>{
           {module + ".dora_scale", "DoRA"},
           {module + ".lora_magnitude_vector", "DoRA"},
           {module + ".lora_B.bias", "bias"},
           {module + ".diff", "whole weight"},
           {module + ".diff_b", "bias"},
           {"base_model.model.proj_out.modules_to_save.weight", "whole weight"},
           {module + ".hada_w1_a", "LoHa"},
           {module + ".lokr_w1", "LoKr"},
           {"lora_te1_text_model_encoder_layers_0_mlp_fc1.lora_down.weight", "text encoder"},
           {"text_encoder.text_model.encoder.layers.0.mlp.fc1.lora_A.weight", "text encoder"},
           {module + ".weight", "not a matrix"}}) {
    Safetensors file = Pair(module);
    file.tensors[name] = Floats({1, 1}, {1});
    EXPECT_THAT(refusal(file), AllOf(HasSubstr(name), HasSubstr(word)));
  }
  EXPECT_THAT(refusal(Pair("transformer.nowhere")), HasSubstr("nowhere"));
  EXPECT_THAT(refusal(Pair(module, 3)), HasSubstr("does not fit"));
  Safetensors alone = Pair(module);
  alone.tensors.erase(module + ".lora_A.weight");
  EXPECT_THAT(refusal(alone), HasSubstr("without its pair"));
  Safetensors twice = Pair(module);
  twice.tensors.merge(Pair("lora_unet_transformer_blocks_0_attn_to_q").tensors);
  EXPECT_THAT(refusal(twice), HasSubstr("second adapter of the same module"));
  Safetensors endless = Pair(module);
  endless.tensors[module + ".lora_B.weight"] = Floats({2, 1}, {1, INFINITY});
  EXPECT_THAT(refusal(endless), HasSubstr("infinity"));
}

// Promise: An adapter of any tool is what that tool says.
TEST(AdapterFileTest, AConfigIsAppliedOrRefusedByItsKey) {
  const std::string module = "base_model.model.transformer_blocks.0.attn.to_q";
  const auto read = [&](const std::string& more) {
    return ParseAdapter(Pair(module), R"({"r": 1, "lora_alpha": 8, )" + more + "}", SmallFlux());
  };
  for (const auto& [more, scale] : std::vector<std::pair<std::string, double>>{
           {R"("use_dora": false, "bias": "none", "modules_to_save": null, "loftq_config": {})", 8},
           {R"("alpha_pattern": {"to_k": 2, "attn.to_q": 64, "to_q": 3})", 64},
           {R"("alpha_pattern": {"o_q": 64}, "init_lora_weights": "gaussian")", 8},
           {R"("layers_to_transform": [0])", 8}}) {
    const auto adapter = read(more);
    ASSERT_TRUE(adapter.ok()) << more << ": " << adapter.status();
    EXPECT_EQ(adapter->modules.begin()->second.scale, scale) << more;
  }
  for (const char* const more :
       {R"("use_dora": true)", R"("modules_to_save": ["proj_out"])", R"("bias": "all")",
        R"("lora_bias": true)", R"("init_lora_weights": "pissa")", R"("peft_type": "LOHA")",
        R"("fan_in_fan_out": true)", R"("layer_replication": [[0, 1]])", R"("of_2027": 1)",
        R"("alpha_pattern": {"a|b": 1})", R"("trainable_token_indices": [1])"}) {
    const std::string key = std::string(more).substr(1, std::string(more).find(':') - 2);
    const absl::Status status = read(more).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << more;
    EXPECT_THAT(std::string(status.message()), HasSubstr(key));
  }
}

TEST(AdapterFileTest, APatternFitsTheEndOfANameFromADotOn) {
  EXPECT_TRUE(FitsPattern("to_q", "blocks.0.attn.to_q"));
  EXPECT_FALSE(FitsPattern("o_q", "blocks.0.attn.to_q"));
  EXPECT_FALSE(FitsPattern("attn", "blocks.0.attn.to_q"));
  EXPECT_TRUE(FitsPattern("^blocks.0.attn.to_q", "blocks.0.attn.to_q"));
  EXPECT_FALSE(FitsPattern("^blocks.0.attn.to_q", "single.blocks.0.attn.to_q"));
  EXPECT_TRUE(FitsPattern(R"(blocks\.\d+\.attn.to_q$)", "blocks.12.attn.to_q"));
  EXPECT_FALSE(FitsPattern("blocks.[0-9]+.attn.to_q", "blocks.x.attn.to_q"));
  EXPECT_TRUE(FitsPattern(".*attn.*", "blocks.0.attn.to_q"));
}

class AdapterFolderTest : public ::testing::Test {
 protected:
  AdapterFolderTest() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  static LoraExport Adapter(float first) {
    const std::string module = "transformer_blocks.0.attn.to_q";
    return {.tensors = {{module + ".lora_A.weight", Floats({1, 2}, {first, 4})},
                        {module + ".lora_B.weight", Floats({2, 1}, {1, 2})}},
            .rank = 1,
            .alpha = 3,
            .targets = {"attn.to_q"},
            .base_model = "base",
            .provenance = {}};
  }
  const fs::path folder_ = fs::path(::testing::TempDir()) / "adapters";
};

TEST_F(AdapterFolderTest, TwoFilesOfOneAdapterAreOneAndOthersAreRefused) {
  ASSERT_TRUE(WritePeftLora(folder_, Adapter(1)).ok());
  ASSERT_TRUE(WriteDiffusersLora(folder_, Adapter(1)).ok());
  const auto same = ReadAdapter(folder_, SmallFlux());
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->file, folder_ / "adapter_model.safetensors");
  ASSERT_TRUE(WriteDiffusersLora(folder_, Adapter(2)).ok());
  EXPECT_THAT(std::string(ReadAdapter(folder_, SmallFlux()).status().message()),
              AllOf(HasSubstr("differ"), HasSubstr("adapter_model.safetensors"),
                    HasSubstr("pytorch_lora_weights.safetensors")));
  EXPECT_TRUE(ReadAdapter(folder_ / "pytorch_lora_weights.safetensors", SmallFlux()).ok());
}

TEST_F(AdapterFolderTest, AnyNameWillDoIfItIsTheOnlyOne) {
  EXPECT_FALSE(HasAdapter(folder_));
  EXPECT_EQ(ReadAdapter(folder_, SmallFlux()).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(
      WriteSafetensors(folder_ / "mine.safetensors", Pair("transformer_blocks.0.attn.to_q")).ok());
  EXPECT_TRUE(HasAdapter(folder_));
  EXPECT_EQ(ReadAdapter(folder_, SmallFlux())->file.filename(), "mine.safetensors");
  ASSERT_TRUE(
      WriteSafetensors(folder_ / "other.safetensors", Pair("transformer_blocks.0.attn.to_q")).ok());
  EXPECT_THAT(std::string(ReadAdapter(folder_, SmallFlux()).status().message()),
              AllOf(HasSubstr("name one"), HasSubstr("mine.safetensors")));
}

}  // namespace
}  // namespace oxbow::io
