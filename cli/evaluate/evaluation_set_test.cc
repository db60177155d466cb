// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate/evaluation_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EvaluationSetTest : public ::testing::Test {
 protected:
  std::filesystem::path File(const std::string& name, const std::string& content) {
    std::ofstream(scratch_.path() / name) << content;
    return scratch_.path() / name;
  }
  std::string Refusal(const std::string& yaml) {
    const auto set = ReadEvaluationSet(File("set.yaml", yaml));
    EXPECT_EQ(set.status().code(), absl::StatusCode::kInvalidArgument) << yaml;
    return std::string(set.status().message());
  }
  // Groups and texts, "GROUP: TEXT".
  std::vector<std::string> Prompts(const v1::EvaluationSet& set) {
    const auto prompts = ReadSetPrompts(set);
    EXPECT_TRUE(prompts.ok()) << prompts.status();
    std::vector<std::string> all;
    for (const SetPrompt& prompt : *prompts) {
      all.push_back(prompt.group + ": " + prompt.prompt.text());
    }
    return all;
  }
  oxbow::testing::ScopedDirectory scratch_;
};

TEST_F(EvaluationSetTest, WhatIsLeftOutIsOnePictureFromSeedZero) {
  const auto set = ReadEvaluationSet(File("mine.yaml", "rewards: [{name: brightness}]\n"));
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->name(), "mine");
  EXPECT_EQ(PicturesPerPrompt(*set), 1u);
  EXPECT_THAT(set->seeds(), ElementsAre(0));
  EXPECT_EQ(set->scale(), 1);
  EXPECT_TRUE(CheckRewards(*set).ok());
}

TEST_F(EvaluationSetTest, BadDefinitionsAreOneLineWithTheirPlace) {
  EXPECT_THAT(Refusal("name: a\nreward: [x]\n"), HasSubstr("set.yaml:2: reward: unknown key"));
  EXPECT_THAT(Refusal("report: mean\n"), HasSubstr("one of prompts, groups, tenths"));
  EXPECT_THAT(Refusal("rewards: [{name: a}, {name: a}]\n"), HasSubstr("name repeats: a"));
  EXPECT_THAT(Refusal("rewards: [{model: a}]\n"), HasSubstr("one has no name"));
  EXPECT_THAT(Refusal("scale: 0\n"), HasSubstr("scale"));
  EXPECT_THAT(Refusal("per_prompt: 600\nseeds: [1, 2]\n"), HasSubstr("more than 1000"));
  EXPECT_THAT(Refusal("files: [{file: a.txt, group: ../b}]\n"), HasSubstr("../b"));
  EXPECT_THAT(Refusal("- a\n"), HasSubstr("expected keys"));
  EXPECT_EQ(ReadEvaluationSet("/nowhere/set.yaml").status().code(), absl::StatusCode::kNotFound);
}

v1::ScorerConfig Entry(const std::string& name, const std::string& scorer = "") {
  v1::ScorerConfig entry;
  entry.set_name(name);
  entry.set_scorer(scorer);
  return entry;
}

TEST_F(EvaluationSetTest, ANameAloneIsThatOfTheServersElsewhere) {
  EXPECT_FALSE(RewardServers().Have(Entry("taste_of_lemons")));
  const RewardServers given({"scores:7072"});
  EXPECT_TRUE(given.Have(Entry("taste_of_lemons")));
  EXPECT_TRUE(given.Have(Entry("brightness")));
  EXPECT_FALSE(given.Have(Entry("brightness", "brightness")));
  v1::EvaluationSet set;
  set.add_rewards()->set_name("taste_of_lemons");
  EXPECT_TRUE(CheckRewards(set, given).ok());
  *set.add_rewards() = Entry("sourness", "taste_of_lemons");
  EXPECT_THAT(std::string(CheckRewards(set, given).message()), HasSubstr("taste_of_lemons"));
}

TEST_F(EvaluationSetTest, ARunsServersHaveWhatItAsksThereAndWhatIsNotHere) {
  v1::RewardConfig run;
  run.add_terms()->set_name("jpeg_size");
  run.add_terms()->set_name("mine");
  *run.add_scorers() = Entry("mine", "brightness");
  EXPECT_FALSE(RewardServers(run).Have(Entry("jpeg_size"))) << "it has no servers elsewhere";
  run.add_endpoints("scores:7072");
  const RewardServers servers(run);
  EXPECT_TRUE(servers.Have(Entry("jpeg_size")));
  EXPECT_TRUE(servers.Have(Entry("taste_of_lemons")));
  EXPECT_FALSE(servers.Have(Entry("brightness"))) << "the run asks nobody for it";
}

TEST_F(EvaluationSetTest, ARewardThatThisBuildHasNotIsNamed) {
  v1::EvaluationSet set;
  set.set_name("mine");
  EXPECT_EQ(CheckRewards(set).message(), "set mine has no rewards");
  set.add_rewards()->set_name("taste_of_lemons");
  EXPECT_THAT(std::string(CheckRewards(set).message()),
              ::testing::AllOf(HasSubstr("set mine"), HasSubstr("taste_of_lemons")));
  set.mutable_rewards(0)->set_kind("json");
  EXPECT_THAT(std::string(CheckRewards(set).message()),
              HasSubstr("set mine: --key taste_of_lemons.url=VALUE: reward taste_of_lemons needs"));
  set.mutable_rewards(0)->clear_kind();
  set.mutable_rewards(0)->set_scorer("jpeg_size");
  EXPECT_TRUE(SetRewardKey("taste_of_lemons.variant=compressibility", set).ok());
  EXPECT_EQ(set.rewards(0).variant(), "compressibility");
  EXPECT_THAT(std::string(SetRewardKey("taste.variant=x", set).message()),
              HasSubstr("no reward taste"));
  EXPECT_THAT(std::string(SetRewardKey("taste_of_lemons.varian=x", set).message()),
              HasSubstr("did you mean `variant`"));
  EXPECT_THAT(std::string(SetRewardKey("variant", set).message()), HasSubstr("REWARD.KEY=VALUE"));
}

TEST_F(EvaluationSetTest, FilesOfTextJsonAndJsonLinesGiveGroups) {
  File("anime.json", R"(["a cat", "a dog", "a cat"])");
  File("photo.txt", "a tree\n\na tree\n");
  v1::EvaluationSet set;
  EXPECT_THAT(std::string(ReadSetPrompts(set).status().message()), HasSubstr("--prompts"));
  set.set_prompts(scratch_.path().string());
  for (const auto& [file, group] : {std::pair("anime.json", "anime"), {"photo.txt", "photo"}}) {
    v1::PromptFile& added = *set.add_files();
    added.set_file(file);
    added.set_group(group);
  }
  EXPECT_THAT(Prompts(set), ElementsAre("anime: a cat", "anime: a dog", "anime: a cat",
                                        "photo: a tree", "photo: a tree"));
  EXPECT_EQ(ReadSetPrompts(set)->back().number, 4u);
  EXPECT_EQ(ReadSetPrompts(set)->back().number_in_file, 1u);
  set.clear_files();
  set.set_prompts(File("g.jsonl", R"({"prompt": "one", "tag": "two_object"})"
                                  "\n"
                                  R"({"prompt": "two", "tag": "colors"})"));
  set.set_group_by("tag");
  EXPECT_THAT(Prompts(set), ElementsAre("two_object: one", "colors: two"));
  set.set_group_by("style");
  EXPECT_THAT(std::string(ReadSetPrompts(set).status().message()),
              ::testing::AllOf(HasSubstr("style"), HasSubstr("one")));
  set.set_prompts(File("bad.json", "{}"));
  EXPECT_THAT(std::string(ReadSetPrompts(set).status().message()), HasSubstr("bad.json"));
  set.set_prompts((scratch_.path() / "absent.txt").string());
  EXPECT_EQ(ReadSetPrompts(set).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(EvaluationSetTest, EveryShippedDefinitionIsSound) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(OXBOW_SOURCE_DIR "/configs/sets")) {
    const auto set = ReadEvaluationSet(entry.path());
    ASSERT_TRUE(set.ok()) << set.status();
    EXPECT_EQ(set->name(), entry.path().stem());
    EXPECT_FALSE(set->about().empty());
    EXPECT_FALSE(set->rewards().empty());
    EXPECT_TRUE(set->prompts().empty()) << "prompts are the user's";
    const auto named = ReadEvaluationSet(entry.path().stem());
    ASSERT_TRUE(named.ok()) << named.status();
    EXPECT_EQ(named->SerializeAsString(), set->SerializeAsString());
    ++count;
  }
  EXPECT_EQ(count, 7);
}

TEST_F(EvaluationSetTest, AnUnknownNameListsTheSets) {
  const absl::Status status = ReadEvaluationSet("genval").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "no set of that name; did you mean `geneval`? known: drawbench, geneval, hpsv2, ocr, "
            "pickscore, t2i-compbench, unseen; or the path of a .yaml file: genval");
  EXPECT_THAT(std::string(ReadEvaluationSet("").status().message()),
              HasSubstr("no set of that name; known: drawbench"));
}

TEST_F(EvaluationSetTest, AKeyOfARunIsNoName) {
  EXPECT_THAT(std::string(ReadEvaluationSet("eval.images=4").status().message()),
              HasSubstr("eval.images is a key of a run: use --images 4"));
  EXPECT_THAT(std::string(ReadEvaluationSet("run.steps=4").status().message()),
              HasSubstr("run.steps is a key of a run: use the flags of oxbow eval --help"));
}

TEST_F(EvaluationSetTest, APathIsNoName) {
  for (const char* path : {"./geneval", "geneval.yaml", "sets/geneval"}) {
    EXPECT_EQ(ReadEvaluationSet(path).status().code(), absl::StatusCode::kNotFound) << path;
  }
}

TEST(SetOfRunTest, HasTheRunsPromptsAndAllItsRewardsWithTheirKeys) {
  v1::RunConfig config;
  config.mutable_run()->set_name("r");
  config.mutable_run()->set_seed(7);
  config.mutable_prompts()->set_eval("held_out.txt");
  config.mutable_reward()->add_terms()->set_name("pickscore");
  config.mutable_reward()->add_observed("jpeg_size");
  v1::ScorerConfig& scorer = *config.mutable_reward()->add_scorers();
  scorer.set_name("pickscore");
  scorer.set_model("/models/p");
  const v1::EvaluationSet set = SetOfRun(config);
  EXPECT_EQ(set.prompts(), "held_out.txt");
  EXPECT_EQ(set.seeds(0), 7u);
  ASSERT_EQ(set.rewards_size(), 2);
  EXPECT_EQ(set.rewards(0).name(), "jpeg_size");
  EXPECT_EQ(set.rewards(1).model(), "/models/p");
}

}  // namespace
}  // namespace oxbow::cli
