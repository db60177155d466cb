// SPDX-License-Identifier: Apache-2.0
#include "config/key_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/yaml_message.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::config {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::vector<std::string> Meant(const std::string& name) {
  return KeysMeantBy(name, *v1::RunConfig::descriptor());
}

TEST(KeyNamesTest, ANameStandsForTheKeyThatEndsWithIt) {
  EXPECT_THAT(Meant("learning_rate"), ElementsAre("optimizer.learning_rate"));
  EXPECT_THAT(Meant("learning_rat"), ElementsAre("optimizer.learning_rate"));
  EXPECT_THAT(Meant("steps"), Contains("run.steps"));
  EXPECT_THAT(Meant("lr"), ElementsAre("optimizer.learning_rate"));
  EXPECT_THAT(Meant("zzzzzzzz"), IsEmpty());
}

TEST(KeyNamesTest, AnExplanationIsThatOfTheDefaultsFile) {
  const auto groups = ExplainKey("batch.groups");
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_EQ(groups->value, "48");
  EXPECT_EQ(groups->meaning, "prompts per learner step");
  EXPECT_EQ(groups->takes, "a whole number, at least 1");
  EXPECT_EQ(groups->recipes, "8 to 64");
  EXPECT_THAT(groups->change, StartsWith("raise it if "));
  EXPECT_EQ(ExplainKey("sampling.height")->takes, "a whole number from 0 to 4294967295");
  EXPECT_THAT(ExplainKey("sampling.dynamics")->change, StartsWith("choose "));
  EXPECT_FALSE(groups->may_change_on_resume);
  EXPECT_TRUE(ExplainKey("eval.every")->may_change_on_resume);
  EXPECT_TRUE(ExplainKey("model.path")->may_change_on_resume);
  EXPECT_EQ(ExplainKey("model.compute_dtype")->takes, "one of f32, bf16");
  EXPECT_EQ(ExplainKey("lr")->key, "optimizer.learning_rate");
  EXPECT_EQ(ExplainKey("model.trained")->takes, "one of full, lora");
  EXPECT_THAT(ExplainKey("method.anchor")->takes, HasSubstr("weight, high"));
  EXPECT_THAT(std::string(ExplainKey("batch.grups").status().message()),
              HasSubstr("did you mean batch.groups"));
}

// Nobody should have to guess: each key has a default that the file says.
TEST(KeyNamesTest, EveryKeyHasItsLineInTheDefaultsFile) {
  for (const std::string& key : LeafKeys(*v1::RunConfig::descriptor())) {
    const auto explained = ExplainKey(key);
    ASSERT_TRUE(explained.ok()) << explained.status();
    EXPECT_FALSE(explained->value.empty()) << key;
  }
}

}  // namespace
}  // namespace oxbow::config
