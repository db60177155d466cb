// SPDX-License-Identifier: Apache-2.0
// The plans of configs/bench/published: each arm is a run that validation accepts, and what the
// papers print is of an arm that there is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <set>

#include "config/run_config.h"
#include "config/validate.h"

namespace oxbow::config {
namespace {

const std::string kRoot = OXBOW_SOURCE_DIR "/";

std::vector<std::string> TextsOf(const YAML::Node& list) {
  std::vector<std::string> texts;
  for (const YAML::Node& text : list) texts.push_back(text.as<std::string>());
  return texts;
}

void ExpectValid(const YAML::Node& plan, const YAML::Node& arm) {
  std::vector<std::string> set = TextsOf(plan["set"]);
  for (const std::string& text : TextsOf(arm["set"])) set.push_back(text);
  const auto run = LoadRunConfig(kRoot + arm["file"].as<std::string>(), set, {});
  ASSERT_TRUE(run.ok()) << run.status();
  for (const Problem& problem : Validate(run->config)) {
    EXPECT_NE(problem.severity, Severity::kError) << problem.key << ": " << problem.message;
  }
  EXPECT_GE(run->config.eval().every(), 1u) << "nothing to compare";
}

// Promise: The papers by one command. Each plan of configs/bench/published names its source, and
// its arms are runs that validation accepts, of recipes alone.
TEST(PublishedPlansTest, EveryArmIsAValidRun) {
  size_t plans = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot + "configs/bench/published")) {
    SCOPED_TRACE(entry.path().filename());
    ++plans;
    const YAML::Node plan = YAML::LoadFile(entry.path());
    EXPECT_EQ(plan["name"].as<std::string>() + ".yaml", entry.path().filename());
    EXPECT_FALSE(plan["source"].as<std::string>().empty());
    std::set<std::string> arms;
    for (const YAML::Node& arm : plan["recipes"]) {
      const auto name = arm["name"].as<std::string>();
      SCOPED_TRACE(name);
      EXPECT_TRUE(arm["file"].as<std::string>().starts_with("configs/recipes/"));
      const auto from = arm["from"].as<std::string>("");
      EXPECT_TRUE(from.empty() || arms.contains(from)) << from << " does not come before it";
      EXPECT_TRUE(arms.insert(name).second);
      ExpectValid(plan, arm);
    }
    EXPECT_TRUE(arms.contains(plan["baseline"].as<std::string>()));
    for (const YAML::Node& one : plan["published"]) {
      EXPECT_TRUE(arms.contains(one["recipe"].as<std::string>()));
      EXPECT_GT(one["value"].as<double>(), 0);
      EXPECT_FALSE(one["of"].as<std::string>().empty());
    }
  }
  EXPECT_GE(plans, 16u);
}

}  // namespace
}  // namespace oxbow::config
