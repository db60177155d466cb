// SPDX-License-Identifier: Apache-2.0
// An export for ComfyUI has names that ComfyUI knows, for all linear layers of every network
// (tools/make_comfy_goldens.py), and changes its joined weights as the parts would.
#include "io/comfy_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "io/adapter_file.h"
#include "io/lora_file.h"

namespace oxbow::io {
namespace {

using Json = nlohmann::json;
using Shapes = std::map<std::string, TensorHeader>;

TensorBytes Numbers(int64_t rows, int64_t columns, int seed) {
  TensorBytes tensor{.dtype = DType::kF32, .shape = {rows, columns}};
  for (int64_t i = 0; i < rows * columns; ++i) {
    const auto value = static_cast<float>((i * 7 + seed) % 11 - 5);
    tensor.data.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return tensor;
}

struct Network {
  Shapes weights;
  std::set<std::string> keys;
};

Network NetworkOf(const std::string& transformer_class) {
  std::ifstream file(OXBOW_SOURCE_DIR "/tests/golden/comfy_names.json");
  const Json golden = Json::parse(file)["classes"].at(transformer_class);
  Network network;
  for (const auto& [pattern, shape] : golden["modules"].items()) {
    for (const char* const number : {"0", "1"}) {
      network.weights[WithNumber(pattern, number) + ".weight"] = {
          .dtype = DType::kF32, .shape = shape.get<std::vector<int64_t>>()};
    }
  }
  for (const Json& key : golden["keys"]) {
    for (const char* const number : {"0", "1"}) {
      network.keys.insert(WithNumber(key.get<std::string>(), number));
    }
  }
  return network;
}

// An adapter of rank 2 on the modules that `wanted` takes.
LoraExport AdapterOn(const Shapes& weights, const std::function<bool(const std::string&)>& wanted) {
  LoraExport lora{
      .tensors = {}, .rank = 2, .alpha = 6, .targets = {}, .base_model = "base", .provenance = {}};
  int seed = 0;
  for (const auto& [name, header] : weights) {
    const std::string module = name.substr(0, name.size() - 7);
    if (!wanted(module)) continue;
    lora.tensors[module + ".lora_A.weight"] = Numbers(2, header.shape[1], ++seed);
    lora.tensors[module + ".lora_B.weight"] = Numbers(header.shape[0], 2, ++seed);
  }
  return lora;
}

class ComfyNamesTest : public ::testing::TestWithParam<const char*> {};

// Promise: ComfyUI knows every name that is exported for it. All linear layers of the networks that
// ComfyUI has are exported under names of its key maps, and change its weights, joined ones too, as
// the adapter does. Others are refused.
TEST_P(ComfyNamesTest, EveryLinearLayerHasANameThatComfyUiKnows) {
  const Network network = NetworkOf(GetParam());
  const auto all = [](const std::string&) { return true; };
  const auto tensors = ComfyTensors(GetParam(), network.weights, AdapterOn(network.weights, all));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  for (const auto& [name, tensor] : *tensors) {
    const std::string key = name.substr(0, name.rfind(".lora_"));
    EXPECT_TRUE(network.keys.contains(key)) << key;
    EXPECT_TRUE(tensors->contains(key + ".lora_A.weight") &&
                tensors->contains(key + ".lora_B.weight"))
        << key;
  }
}

// Joined modules give their parts back, also where some of them have no adapter.
// Promise: ComfyUI knows every name that is exported for it.
TEST_P(ComfyNamesTest, ReadingItBackGivesTheSameChangeOfEveryWeight) {
  const Network network = NetworkOf(GetParam());
  for (const bool some : {false, true}) {
    const LoraExport lora = AdapterOn(network.weights, [&](const std::string& module) {
      return !some || module.ends_with("to_q") || module.ends_with("proj_mlp");
    });
    auto tensors = ComfyTensors(GetParam(), network.weights, lora).value();
    const auto read = ParseAdapter({.tensors = std::move(tensors), .metadata = {}}, "",
                                   {GetParam(), network.weights});
    ASSERT_TRUE(read.ok()) << read.status();
    std::set<std::string> changed;
    for (const auto& [module, matrices] : read->modules) {
      const int64_t rank = matrices.a.shape[0];
      const auto value = [](const TensorBytes& tensor, int64_t i) {
        float number;
        std::memcpy(&number, tensor.data.data() + static_cast<size_t>(i) * sizeof number,
                    sizeof number);
        return number;
      };
      const auto down = lora.tensors.find(module + ".lora_A.weight");
      for (int64_t i = 0; i < matrices.b.shape[0]; ++i) {
        for (int64_t j = 0; j < matrices.a.shape[1]; ++j) {
          float sum = 0;
          for (int64_t k = 0; k < rank; ++k) {
            sum += value(matrices.b, i * rank + k) * value(matrices.a, k * matrices.a.shape[1] + j);
          }
          float right = 0;
          for (int64_t k = 0; k < 2 && down != lora.tensors.end(); ++k) {
            right += 3 * value(lora.tensors.at(module + ".lora_B.weight"), i * 2 + k) *
                     value(down->second, k * matrices.a.shape[1] + j);
          }
          ASSERT_EQ(sum, right) << module;
        }
      }
      if (down != lora.tensors.end()) changed.insert(module);
    }
    EXPECT_EQ(changed.size() * 2, lora.tensors.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, ComfyNamesTest,
                         ::testing::Values("SD3Transformer2DModel", "FluxTransformer2DModel",
                                           "Flux2Transformer2DModel", "QwenImageTransformer2DModel",
                                           "ZImageTransformer2DModel", "WanTransformer3DModel",
                                           "LTXVideoTransformer3DModel",
                                           "HunyuanVideoTransformer3DModel"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ComfyNamesTest, AJoinedModuleHasTheRanksOfItsPartsAndBInBlocks) {
  const Network network = NetworkOf("HunyuanVideoTransformer3DModel");
  const LoraExport lora = AdapterOn(network.weights, [](const std::string& module) {
    return module == "single_transformer_blocks.1.attn.to_q" ||
           module == "single_transformer_blocks.1.proj_mlp";
  });
  const auto tensors =
      ComfyTensors("HunyuanVideoTransformer3DModel", network.weights, lora).value();
  ASSERT_EQ(tensors.size(), 2u);
  const std::string name = "diffusion_model.single_blocks.1.linear1";
  EXPECT_EQ(tensors.at(name + ".lora_A.weight").shape, (std::vector<int64_t>{4, 16}));
  EXPECT_EQ(tensors.at(name + ".lora_B.weight").shape, (std::vector<int64_t>{3 * 16 + 64, 4}));
}

TEST(ComfyNamesTest, AClassOrModuleThatComfyUiDoesNotHaveIsNamed) {
  const Network wan = NetworkOf("WanTransformer3DModel");
  const auto all = [](const std::string&) { return true; };
  EXPECT_THAT(
      std::string(
          ComfyTensors("Of2027Model", wan.weights, AdapterOn(wan.weights, all)).status().message()),
      ::testing::HasSubstr("Of2027Model"));
  const Shapes odd = {{"blocks.0.attn9.to_q.weight", {.dtype = DType::kF32, .shape = {2, 2}}}};
  EXPECT_THAT(
      std::string(
          ComfyTensors("WanTransformer3DModel", odd, AdapterOn(odd, all)).status().message()),
      ::testing::HasSubstr("attn9"));
}

}  // namespace
}  // namespace oxbow::io
