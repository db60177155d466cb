// SPDX-License-Identifier: Apache-2.0
#include "services/learner/record/hyper_parameters.h"

#include <gtest/gtest.h>

#include "config/run_config.h"
#include "config/yaml_message.h"

namespace oxbow::learner {
namespace {

TEST(HyperParametersTest, AreKeysOfARunFileWithTheirValues) {
  const auto resolved = config::LoadRunConfig(
      "", {"recipe=digits-op-grpo", "run.seed=7", "optimizer.learning_rate=0.125"}, {});
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  const auto values = HyperParametersOf(resolved->config);
  EXPECT_EQ(std::get<double>(values.at("run.seed")), 7);
  EXPECT_EQ(std::get<double>(values.at("optimizer.learning_rate")), 0.125);
  EXPECT_EQ(std::get<std::string>(values.at("method.name")), "grpo");
  EXPECT_EQ(std::get<std::string>(values.at("reward.terms")), "[{name: digits_ocr, weight: 1}]");
  const std::vector<std::string> keys = config::LeafKeys(*v1::RunConfig::descriptor());
  for (const auto& [key, value] : values) {
    EXPECT_NE(std::find(keys.begin(), keys.end(), key), keys.end()) << key;
  }
}

}  // namespace
}  // namespace oxbow::learner
