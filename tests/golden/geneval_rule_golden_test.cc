// SPDX-License-Identifier: Apache-2.0
// GenEval's rules against upstream's own code, on 1,000 random prompts and detections: a file of
// tools/make_geneval_rule_goldens.py, OXBOW_GENEVAL_RULES or tests/golden/rewards.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "core/reward/geneval_rule.h"
#include "io/graph_files.h"

namespace oxbow::reward {
namespace {

using Json = nlohmann::json;

Json Golden() {
  const char* file = std::getenv("OXBOW_GENEVAL_RULES");
  const auto text = io::ReadGraphFile(
      file != nullptr ? file : OXBOW_SOURCE_DIR "/tests/golden/rewards/geneval_rule.json.gz");
  EXPECT_TRUE(text.ok()) << text.status();
  return Json::parse(*text);
}

int IndexIn(absl::Span<const char* const> names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  EXPECT_NE(found, names.end()) << name;
  return static_cast<int>(found - names.begin());
}

struct Case {
  GenevalPrompt prompt;
  std::vector<Detection> detections;
  std::map<size_t, int> colours;
};

// Colours of what DetectionsToColour names alone: a verdict that needs another one dies.
Case Read(const Json& item, GenevalVariant variant) {
  Case read;
  const auto prompt = ParseGenevalPrompt(item["metadata"].dump());
  EXPECT_TRUE(prompt.ok()) << prompt.status();
  read.prompt = *prompt;
  for (const Json& row : item["detections"]) {
    read.detections.push_back({.thing = IndexIn(GenevalThings(), row[0]),
                               .box = {row[1], row[2], row[3], row[4]},
                               .score = row[5]});
  }
  const CountedDetections counted = CountDetections(read.detections, read.prompt.tag);
  for (const size_t i : DetectionsToColour(read.prompt, counted, variant)) {
    read.colours[i] = IndexIn(GenevalColours(), item["detections"][i][6]);
  }
  return read;
}

GenevalVerdict VerdictOf(const Case& read, GenevalVariant variant) {
  return JudgeGeneval(read.prompt, read.detections,
                      CountDetections(read.detections, read.prompt.tag), read.colours, variant);
}

class GenevalRuleGoldenTest : public ::testing::TestWithParam<GenevalVariant> {};

// Promise: Rewards are those of their projects.

TEST_P(GenevalRuleGoldenTest, VerdictsAreUpstreams) {
  const Json golden = Golden();
  ASSERT_GE(golden["cases"].size(), 1000u);
  const bool official = GetParam() == GenevalVariant::kOfficial;
  for (const Json& item : golden["cases"]) {
    const GenevalVerdict ours = VerdictOf(Read(item, GetParam()), GetParam());
    const Json& theirs = item[official ? "official" : "flow_grpo"];
    EXPECT_EQ(ours.correct, theirs["correct"]) << item;
    EXPECT_EQ(ours.reason, theirs["reason"]) << item;
    if (official) continue;
    EXPECT_EQ(ours.score, theirs["score"].get<double>()) << item;
  }
}

TEST_P(GenevalRuleGoldenTest, TheOrderOfDetectionsChangesNothing) {
  for (const Json& item : Golden()["cases"]) {
    Json turned = item;
    std::reverse(turned["detections"].begin(), turned["detections"].end());
    const GenevalVerdict a = VerdictOf(Read(item, GetParam()), GetParam());
    const GenevalVerdict b = VerdictOf(Read(turned, GetParam()), GetParam());
    EXPECT_EQ(a.score, b.score);
    EXPECT_EQ(a.reason, b.reason);
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, GenevalRuleGoldenTest,
                         ::testing::Values(GenevalVariant::kOfficial, GenevalVariant::kFlowGrpo),
                         [](const auto& variant) {
                           return std::string(variant.param == GenevalVariant::kOfficial
                                                  ? "official"
                                                  : "flow_grpo");
                         });

TEST(GenevalNamesTest, NamesAndTheirOrderAreUpstreams) {
  const Json golden = Golden();
  const auto strings = [](absl::Span<const char* const> names) {
    return std::vector<std::string>(names.begin(), names.end());
  };
  EXPECT_EQ(strings(GenevalThings()), golden["classes"].get<std::vector<std::string>>());
  EXPECT_EQ(strings(GenevalColours()), golden["colours"].get<std::vector<std::string>>());
}

}  // namespace
}  // namespace oxbow::reward
