// SPDX-License-Identifier: Apache-2.0
// The modules that recipes give an adapter in networks of the published sizes, against those that
// PEFT chooses in diffusers' (tools/make_adapter_goldens.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/model/architecture.h"
#include "core/model/lora.h"
#include "io/graph_files.h"
#include "run/model_facts.h"

namespace oxbow::model {
namespace {

const std::string kSource = OXBOW_SOURCE_DIR;

nlohmann::json ReadPacked(const std::string& file) {
  const auto text = io::ReadGraphFile(kSource + file);
  EXPECT_TRUE(text.ok()) << text.status();
  return nlohmann::json::parse(*text);
}

// Promise: Recipes train the published modules. In networks of the published sizes (SD3.5 medium
// and large, FLUX.1, Wan2.1 1.3B and 14B, Qwen-Image, Z-Image) the recipes give an adapter to
// exactly the modules that PEFT chooses for the published targets: 191, 303, 342, 240, 400, 600,
// 238. The recipes after Flow-Factory's files are what `oxbow import-config` makes of those files.
TEST(AdapterModulesTest, RecipesTrainTheModulesThatPeftWouldTrain) {
  const nlohmann::json goldens = ReadPacked("/tests/golden/adapters.json.gz");
  for (const auto& [name, golden] : goldens.items()) {
    const std::string recipe = name.substr(0, name.find(','));  // It may be tried in two networks.
    const std::string file = "/models/graphs/" + golden["graph"].get<std::string>() + ".json.gz";
    const nlohmann::json header = ReadPacked(file);
    const auto architecture = ReadArchitecture({.class_name = header["class"],
                                                .config_json = header["config"].dump(),
                                                .graph_json = *io::ReadGraphFile(kSource + file)});
    ASSERT_TRUE(architecture.ok()) << recipe << ": " << architecture.status();
    auto run = config::LoadRunConfig({}, {"recipe=" + recipe}, {});
    ASSERT_TRUE(run.ok()) << run.status();
    run::FillLoraTargets(**architecture, *run->config.mutable_model());
    const auto& targets = run->config.model().lora().targets();
    const auto chosen =
        MatchLoraTargets((*architecture)->linears(), {targets.begin(), targets.end()});
    ASSERT_TRUE(chosen.ok()) << recipe << ": " << chosen.status();
    EXPECT_EQ(*chosen, golden["modules"].get<std::vector<std::string>>()) << name;
  }
}

// A run that names no targets trains an adapter of any network that comes with a graph.
// Promise: An adapter needs no list of layers. Every network that comes with a graph has the layers
// that its class gives an adapter by default. Runs and checkpoints from before, when SD3's were the
// default, go on.
TEST(AdapterModulesTest, EveryArchitectureHasTargetsThatItsNetworksHave) {
  int transformers = 0;
  for (const auto& file : std::filesystem::directory_iterator(kSource + "/models/graphs")) {
    const std::string name = file.path().filename();
    if (name.find("Transformer") == std::string::npos) continue;
    const std::string text = *io::ReadGraphFile(file.path());
    const auto header = nlohmann::json::parse(text);
    const auto architecture = ReadArchitecture({.class_name = header["class"],
                                                .config_json = header["config"].dump(),
                                                .graph_json = text});
    ASSERT_TRUE(architecture.ok()) << name << ": " << architecture.status();
    ++transformers;
    v1::ModelConfig model;
    model.set_trained(v1::TRAINED_PART_LORA);
    run::FillLoraTargets(**architecture, model);
    const auto& targets = model.lora().targets();
    const auto matched =
        MatchLoraTargets((*architecture)->linears(), {targets.begin(), targets.end()});
    ASSERT_TRUE(matched.ok()) << name << ": " << matched.status();
    EXPECT_GE(matched->size(), 65u) << name;
  }
  EXPECT_EQ(transformers, 15);
}

}  // namespace
}  // namespace oxbow::model
