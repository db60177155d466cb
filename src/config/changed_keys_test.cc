// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "config/fingerprint.h"
#include "config/run_config.h"

namespace oxbow::config {
namespace {

using ::testing::Contains;
using ::testing::Not;

v1::RunConfig Resolved(const std::vector<std::string>& overrides) {
  const auto resolved = LoadRunConfig({}, overrides, {});
  OXBOW_CHECK(resolved.ok()) << resolved.status();
  return resolved->config;
}

TEST(ChangedKeysTest, NameTheKeyAndBothValues) {
  const std::vector<ChangedKey> changed =
      ChangedKeys(Resolved({"run.steps=3"}),
                  Resolved({"optimizer.learning_rate=1e-5", "run.steps=9", "sampling.steps=7"}));
  ASSERT_EQ(changed.size(), 2u);
  EXPECT_EQ(changed[0].key, "sampling.steps");
  EXPECT_EQ(changed[0].now, "7");
  EXPECT_EQ(changed[1].key, "optimizer.learning_rate");
  EXPECT_EQ(std::stod(changed[1].before), Resolved({}).optimizer().learning_rate());
  EXPECT_EQ(changed[1].now, "1e-05");
}

TEST(ChangedKeysTest, KeysThatMayDifferAreListed) {
  const std::vector<std::string> free = FreeKeys();
  for (const char* key : {"run.steps", "eval.*", "services.*", "reward.endpoints"}) {
    EXPECT_THAT(free, Contains(key));
  }
  EXPECT_THAT(free, Not(Contains("optimizer.learning_rate")));
  EXPECT_THAT(free, Not(Contains("model.path"))) << "only to the same content";
}

TEST(ChangedKeysTest, WhatEvaluationsMeasureMayChangeAndIsTold) {
  const v1::RunConfig before = Resolved({"reward.observed=[]"});
  const v1::RunConfig now =
      Resolved({"reward.observed=[brightness]", "eval.images=32", "eval.every=7", "run.name=b"});
  EXPECT_TRUE(ChangedKeys(before, now).empty());
  const std::vector<ChangedKey> changed = ChangedMeasures(before, now);
  ASSERT_EQ(changed.size(), 2u);
  EXPECT_EQ(changed[0].key, "reward.observed");
  EXPECT_EQ(changed[0].before, "[]");
  EXPECT_EQ(changed[0].now, "[brightness]");
  EXPECT_EQ(changed[1].key, "eval.images");
}

// Over all pairs of shipped configs: those of the golden fingerprints.
// Promise: Nobody loses a run.
TEST(ChangedKeysTest, AreNoneExactlyWhereTheFingerprintsAreEqual) {
  std::ifstream lines(OXBOW_SOURCE_DIR "/tests/golden/fingerprints.txt");
  std::vector<v1::RunConfig> configs;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string former, present, recipe;
    words >> former >> present >> recipe;
    std::vector<std::string> overrides = {"recipe=" + recipe};
    for (std::string word; words >> word;) overrides.push_back(word);
    configs.push_back(Resolved(overrides));
  }
  ASSERT_GT(configs.size(), 30u);
  int equal = 0;
  for (const v1::RunConfig& before : configs) {
    const std::string fingerprint = FingerprintOf(before);
    for (const v1::RunConfig& now : configs) {
      const bool same = fingerprint == FingerprintOf(now);
      equal += same;
      EXPECT_EQ(ChangedKeys(before, now).empty(), same)
          << before.run().name() << ", " << now.run().name();
    }
  }
  EXPECT_GT(equal, static_cast<int>(configs.size())) << "no two configs have one fingerprint";
}

}  // namespace
}  // namespace oxbow::config
