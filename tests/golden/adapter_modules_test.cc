// SPDX-License-Identifier: Apache-2.0
// The modules that recipes give an adapter in networks of the published sizes, against those that
// PEFT chooses in diffusers' (tools/make_adapter_goldens.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/model/architecture.h"
#include "core/model/lora.h"
#include "io/graph_files.h"

namespace oxbow::model {
namespace {

const std::string kSource = OXBOW_SOURCE_DIR;

nlohmann::json ReadPacked(const std::string& file) {
  const auto text = io::ReadGraphFile(kSource + file);
  EXPECT_TRUE(text.ok()) << text.status();
  return nlohmann::json::parse(*text);
}

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
    const auto run = config::LoadRunConfig({}, {"recipe=" + recipe}, {});
    ASSERT_TRUE(run.ok()) << run.status();
    const auto& targets = run->config.model().lora().targets();
    const auto chosen =
        MatchLoraTargets((*architecture)->linears(), {targets.begin(), targets.end()});
    ASSERT_TRUE(chosen.ok()) << recipe << ": " << chosen.status();
    EXPECT_EQ(*chosen, golden["modules"].get<std::vector<std::string>>()) << name;
  }
}

}  // namespace
}  // namespace oxbow::model
