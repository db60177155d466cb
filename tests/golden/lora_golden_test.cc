// SPDX-License-Identifier: Apache-2.0
// Our adapters against PEFT's: which modules the targets select, velocities, gradients of a loss,
// and the files that diffusers and peft write. tools/check_exported_adapter.py loads ours with
// them.
#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/sha256.h"
#include "core/model/lora.h"
#include "core/model/parameters.h"
#include "core/model/velocity_model.h"
#include "gtest/gtest.h"
#include "io/lora_file.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"
#include "tests/golden/model_golden.h"

namespace oxbow::model {
namespace {

class LoraGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  at::Tensor Velocity(const VelocityModel& model) const {
    return model.Velocity(
        golden_.in.at("x"), golden_.in.at("sigma"),
        {{kPromptTokens, golden_.in.at("tokens")}, {kPooledPrompt, golden_.in.at("pooled")}});
  }

  // Our files, in all formats. TEST_TMPDIR says where, for the tool.
  std::filesystem::path Exported() const {
    const std::filesystem::path directory =
        std::filesystem::path(::testing::TempDir()) / GetParam();
    const io::LoraExport lora{.tensors = io::AllFromTorch(golden_.adapter),
                              .rank = spec_.rank,
                              .alpha = spec_.alpha,
                              .targets = spec_.targets,
                              .base_model = "base",
                              .provenance = {{"oxbow.step", "7"}}};
    EXPECT_TRUE(io::WriteDiffusersLora(directory, lora).ok());
    EXPECT_TRUE(
        io::WriteComfyLora(directory / "comfyui", "adapter", "SD3Transformer2DModel", {}, lora)
            .ok());
    EXPECT_TRUE(io::WritePeftLora(directory / "peft", lora).ok());
    return directory;
  }

  static std::vector<std::string> KeysOf(const io::Safetensors& file) {
    std::vector<std::string> keys;
    for (const auto& [name, tensor] : file.tensors) keys.push_back(name);
    return keys;
  }

  const Golden golden_{GetParam()};
  const std::shared_ptr<const Architecture> network_ = golden_.Network();
  const LoraSpec spec_{
      .rank = std::stol(golden_.metadata.at("rank")),
      .alpha = std::stod(golden_.metadata.at("alpha")),
      .targets = nlohmann::json::parse(golden_.metadata.at("targets")),
  };
};

TEST_P(LoraGoldenTest, TargetsSelectTheModulesThatPeftSelects) {
  const auto fresh = InitialLora(network_->linears(), spec_, /*seed=*/1);
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  std::vector<std::string> ours, theirs;
  for (const auto& [name, tensor] : *fresh) ours.push_back(name);
  for (const auto& [name, tensor] : golden_.adapter) theirs.push_back(name);
  EXPECT_EQ(ours, theirs);
}

TEST_P(LoraGoldenTest, VelocitiesAndGradientsAreThoseOfPeft) {
  ParameterSet matrices(golden_.adapter, /*trainable=*/true);
  const LoraAdapter adapter{.tensors = matrices.tensors(),
                            .scale = spec_.alpha / static_cast<double>(spec_.rank)};
  const auto adapted = network_->Make(golden_.weights, &adapter, {});
  ASSERT_TRUE(adapted.ok()) << adapted.status();
  const at::Tensor v = Velocity(**adapted);
  ExpectClose(v, golden_.out.at("v"));
  matrices.ZeroGrad();
  ((v * golden_.in.at("direction")).mean().exp() + v.square().mean() * 0.5).backward();
  ASSERT_EQ(golden_.gradients.size(), golden_.adapter.size());
  ExpectGradients(matrices, golden_.gradients, /*floor=*/0);

  const auto base = network_->Make(golden_.weights, nullptr, {});
  ASSERT_TRUE(base.ok()) << base.status();
  ExpectClose(Velocity(**base), golden_.out.at("base"));
}

TEST_P(LoraGoldenTest, ExportedFilesHaveTheKeysOfDiffusersAndPeftsOwn) {
  const std::filesystem::path directory = Exported();
  const auto diffusers = nlohmann::json::parse(golden_.metadata.at("diffusers"));
  const auto file = io::ReadSafetensors(directory / "pytorch_lora_weights.safetensors").value();
  EXPECT_EQ(KeysOf(file), diffusers["keys"].get<std::vector<std::string>>());
  const auto declared = nlohmann::json::parse(file.metadata.at("lora_adapter_metadata"));
  const auto published =
      nlohmann::json::parse(diffusers["metadata"]["lora_adapter_metadata"].get<std::string>());
  for (const auto& [key, value] : published.items()) EXPECT_TRUE(declared.contains(key)) << key;
  EXPECT_EQ(declared.size(), published.size());
  EXPECT_EQ(declared["transformer.r"], published["transformer.r"]);

  const auto peft = nlohmann::json::parse(golden_.metadata.at("peft"));
  const auto matrices = io::ReadSafetensors(directory / "peft/adapter_model.safetensors").value();
  EXPECT_EQ(KeysOf(matrices), peft["keys"].get<std::vector<std::string>>());
  const auto config =
      nlohmann::json::parse(ReadFile(directory / "peft/adapter_config.json").value());
  for (const auto& [key, value] : config.items()) {
    ASSERT_TRUE(peft["config"].contains(key)) << key << " would be refused by LoraConfig";
    if (key == "base_model_name_or_path" || key == "target_modules") continue;
    EXPECT_EQ(value, peft["config"][key]) << key;
  }
}

// The velocities are what the loaders of diffusers and peft made of these very files.
TEST_P(LoraGoldenTest, DiffusersAndPeftLoadTheseFilesAsWeMeanThem) {
  if (!std::filesystem::exists(GoldenPath("exported.safetensors"))) GTEST_SKIP() << "not recorded";
  const auto recorded = io::ReadSafetensors(GoldenPath("exported.safetensors")).value();
  const std::filesystem::path directory = Exported();
  for (const char* file : {"pytorch_lora_weights.safetensors", "comfyui/adapter.safetensors",
                           "peft/adapter_model.safetensors", "peft/adapter_config.json"}) {
    EXPECT_EQ(Sha256Hex(ReadFile(directory / file).value()),
              recorded.metadata.at(GetParam() + "/" + file))
        << file << ": check and record it again with tools/check_exported_adapter.py";
  }
  ParameterSet matrices(golden_.adapter, /*trainable=*/false);
  const LoraAdapter adapter{.tensors = matrices.tensors(),
                            .scale = spec_.alpha / static_cast<double>(spec_.rank)};
  const auto model = network_->Make(golden_.weights, &adapter, {});
  ASSERT_TRUE(model.ok()) << model.status();
  const at::Tensor v = Velocity(**model);
  for (const char* loader : {".diffusers", ".peft"}) {
    ExpectClose(v, *io::ToTorch(recorded.tensors.at(GetParam() + loader)));
  }
}

// ComfyUI takes alpha / r for 1 where a file has no alpha, and looks weights up by diffusers' names
// behind "transformer.".
TEST_P(LoraGoldenTest, ComfyUisReadingHasTheRightStrength) {
  NamedTensors matrices;
  const auto file = io::ReadSafetensors(Exported() / "comfyui/adapter.safetensors").value();
  for (const auto& [name, tensor] : file.tensors) {
    constexpr std::string_view kPrefix = "transformer.";
    ASSERT_TRUE(name.starts_with(kPrefix) && !name.ends_with("alpha")) << name;
    matrices[name.substr(kPrefix.size())] = *io::ToTorch(tensor);
  }
  NamedTensors merged = golden_.weights;
  for (const auto& [name, a] : matrices) {
    const size_t end = name.find(".lora_A.weight");
    if (end == std::string::npos) continue;
    const std::string module = name.substr(0, end);
    at::Tensor& weight = merged.at(module + ".weight");
    weight = MergedWeight(weight, a, matrices.at(module + ".lora_B.weight"), /*scale=*/1);
  }
  const auto model = network_->Make(merged, nullptr, {});
  ASSERT_TRUE(model.ok()) << model.status();
  ExpectClose(Velocity(**model), golden_.out.at("v"));
}

INSTANTIATE_TEST_SUITE_P(Configs, LoraGoldenTest, ::testing::ValuesIn(GoldenNames("lora")),
                         [](const auto& info) { return info.param; });

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LoraGoldenTest);

}  // namespace
}  // namespace oxbow::model
