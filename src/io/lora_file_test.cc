// SPDX-License-Identifier: Apache-2.0
#include "io/lora_file.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/safetensors.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kModule[] = "transformer_blocks.0.attn.to_q";

TensorBytes Floats(std::vector<int64_t> shape, const std::vector<float>& values) {
  TensorBytes tensor{.dtype = DType::kF32, .shape = std::move(shape)};
  tensor.data.assign(reinterpret_cast<const char*>(values.data()), 4 * values.size());
  return tensor;
}

LoraExport Sample() {
  return {
      .tensors = {{std::string(kModule) + ".lora_A.weight", Floats({2, 1}, {3, 4})},
                  {std::string(kModule) + ".lora_B.weight", Floats({3, 2}, {1, 2, 3, 4, 5, 6})}},
      .rank = 2,
      .alpha = 4,
      .targets = {"attn.to_q"},
      .base_model = "models/base",
      .provenance = {{"oxbow.step", "7"}}};
}

fs::path Directory(const char* name) {
  const fs::path directory = fs::path(::testing::TempDir()) / name;
  fs::remove_all(directory);
  return directory;
}

TEST(LoraFileTest, DiffusersAndComfyUiGetAlphaInB) {
  const fs::path directory = Directory("folded");
  ASSERT_TRUE(WriteDiffusersLora(directory, Sample()).ok());
  ASSERT_TRUE(WriteComfyLora(directory, "mine", "SD3Transformer2DModel", {}, Sample()).ok());
  const auto diffusers = ReadSafetensors(directory / "pytorch_lora_weights.safetensors");
  ASSERT_TRUE(diffusers.ok()) << diffusers.status();
  EXPECT_EQ(diffusers->metadata.at("oxbow.step"), "7");
  EXPECT_EQ(diffusers->metadata.at("lora_adapter_metadata"),
            R"({"transformer.r":2,"transformer.lora_alpha":2,)"
            R"("transformer.target_modules":["attn.to_q"]})");
  const auto comfyui = ReadSafetensors(directory / "mine.safetensors");
  ASSERT_TRUE(comfyui.ok()) << comfyui.status();
  for (const Safetensors* file : {&*diffusers, &*comfyui}) {
    EXPECT_EQ(file->tensors.size(), 2u);  // No ".alpha": diffusers refuses it for this model.
    const std::string prefix = std::string("transformer.") + kModule;
    EXPECT_EQ(file->tensors.at(prefix + ".lora_A.weight").data, Floats({2, 1}, {3, 4}).data);
    EXPECT_EQ(file->tensors.at(prefix + ".lora_B.weight").data,
              Floats({3, 2}, {2, 4, 6, 8, 10, 12}).data);
  }
}

// Diffusers reads these names, too.
TEST(LoraFileTest, ComfyUiGetsItsOwnNamesWhereItKnowsNoOthers) {
  LoraExport lora = Sample();
  lora.tensors = {{"blocks.0.attn1.to_q.lora_A.weight", Floats({2, 1}, {3, 4})},
                  {"blocks.0.attn1.to_q.lora_B.weight", Floats({1, 2}, {1, 2})}};
  const fs::path directory = Directory("wan");
  ASSERT_TRUE(WriteComfyLora(directory, "mine", "WanTransformer3DModel", {}, lora).ok());
  const auto file = ReadSafetensors(directory / "mine.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors.at("diffusion_model.blocks.0.self_attn.q.lora_B.weight").data,
            Floats({1, 2}, {2, 4}).data);
}

TEST(LoraFileTest, PeftGetsTheTrainedMatricesAndAlphaAsSet) {
  const fs::path directory = Directory("peft");
  ASSERT_TRUE(WritePeftLora(directory, Sample()).ok());
  const auto file = ReadSafetensors(directory / "adapter_model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  const std::string prefix = std::string("base_model.model.") + kModule;
  EXPECT_EQ(file->tensors.at(prefix + ".lora_B.weight").data,
            Floats({3, 2}, {1, 2, 3, 4, 5, 6}).data);
  const auto config = nlohmann::json::parse(ReadFile(directory / "adapter_config.json").value());
  EXPECT_EQ(config["r"], 2);
  EXPECT_TRUE(config["lora_alpha"].is_number_integer());
  EXPECT_EQ(config["lora_alpha"], 4);
  EXPECT_EQ(config["base_model_name_or_path"], "models/base");
}

TEST(LoraFileTest, WhatIsNoAdapterIsNamedAndNotWritten) {
  const auto refusal = [](const LoraExport& lora) {
    const fs::path directory = Directory("refused");
    for (const absl::Status& status :
         {WriteDiffusersLora(directory, lora), WritePeftLora(directory, lora)}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    }
    EXPECT_FALSE(fs::exists(directory));
    return std::string(CheckLora(lora).message());
  };
  LoraExport lora = Sample();
  lora.tensors["other"] = Floats({1}, {1});
  EXPECT_THAT(refusal(lora), HasSubstr("other"));
  lora = Sample();
  lora.tensors.erase(std::string(kModule) + ".lora_B.weight");
  EXPECT_THAT(refusal(lora), HasSubstr(kModule));
  lora = Sample();
  lora.rank = 3;
  EXPECT_THAT(refusal(lora), HasSubstr("rank 3"));
  lora = Sample();
  lora.tensors.clear();
  EXPECT_THAT(refusal(lora), HasSubstr("nothing"));
}

}  // namespace
}  // namespace oxbow::io
