// SPDX-License-Identifier: Apache-2.0
// Findings of `oxbow validate` about prompt files and rewards that are not there.
#include "cli/plan/check_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "config/run_config.h"
#include "core/model/cuda_graphs.h"
#include "core/model/device.h"
#include "io/picture_file.h"
#include "run/rewards.h"
#include "services/reward/scorer_table.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Promise: `train` starts a config that `validate` accepts.
class CheckFilesTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& content) {
    std::ofstream(scratch_.path() / name) << content;
  }
  // The problems of a key, one per line.
  std::string Said(const std::string& key) {
    std::string lines;
    for (const config::Problem& problem : CheckFiles(config_)) {
      if (problem.key == key) absl::StrAppend(&lines, problem.message, "\n");
    }
    return lines;
  }

  testing::ScopedDirectory scratch_;
  v1::RunConfig config_;
};

TEST_F(CheckFilesTest, PromptFilesAreReadWhole) {
  Write("train.jsonl", "{\"prompt\":\"a\"}\n{\"prompt\":\"b\",\"negative_prompt\":\"c\"}\n");
  Write("test.txt", "a\n\xff\n");
  config_.mutable_prompts()->set_train(scratch_.path());
  config_.mutable_prompts()->set_eval(scratch_.path());
  config_.mutable_batch()->set_groups(2);
  EXPECT_THAT(Said("prompts.train"), HasSubstr("negative_prompt of a line has no effect"));
  EXPECT_THAT(Said("prompts.eval"), HasSubstr("test.txt:2: not UTF-8"));
  EXPECT_EQ(Said("prompts.choice"), "");
  config_.mutable_prompts()->set_choice(v1::PROMPT_CHOICE_LEARNABLE);
  EXPECT_THAT(Said("prompts.choice"), HasSubstr("every step takes all 2 prompts"));
  config_.mutable_batch()->set_groups(3);
  EXPECT_THAT(Said("prompts.train"), HasSubstr("fewer prompts than batch.groups = 3, got 2"));
  config_.mutable_prompts()->set_eval("nowhere/test.txt");
  EXPECT_THAT(Said("prompts.eval"),
              AllOf(HasSubstr("nowhere/test.txt"), HasSubstr("in the working directory, then from "
                                                             "the run file's folder upwards")));
  config_.mutable_prompts()->set_eval("/nowhere/test.txt");
  EXPECT_THAT(Said("prompts.eval"),
              AllOf(HasSubstr("/nowhere/test.txt"), Not(HasSubstr("working directory"))));
}

TEST_F(CheckFilesTest, PromptsThatAreCutAreCounted) {
  std::string words;
  for (int i = 0; i < 200; ++i) words += " text";
  Write("train.txt", "text 1\ntext" + words + "\n");
  config_.mutable_prompts()->set_train(scratch_.path() / "train.txt");
  config_.mutable_model()->set_path(OXBOW_SOURCE_DIR "/models/digits");
  EXPECT_THAT(Said("prompts.train"), AllOf(HasSubstr("1 of 2 prompts is longer than "),
                                           HasSubstr("no setting reads more, shorten them")));
  // The key that mends it, which doctor names, too: changing the prompts is not what is meant.
  config_.mutable_model()->set_path(OXBOW_SOURCE_DIR "/tests/golden/text/pipeline");
  config_.mutable_prompts()->set_t5_length(8);
  EXPECT_THAT(Said("prompts.t5_length"),
              AllOf(HasSubstr("of prompts.train 1 of 2 prompts is longer than 8 tokens"),
                    HasSubstr("raise prompts.t5_length to ")));
  EXPECT_THAT(Said("prompts.train"), Not(HasSubstr("longer than")));
}

TEST_F(CheckFilesTest, HeldOutPromptsThatAreTrainedOnAreCounted) {
  Write("a.txt", "one\ntwo\nthree\n");
  Write("b.txt", "two\nfour\nthree\n");
  config_.mutable_prompts()->set_train((scratch_.path() / "a.txt").string());
  config_.mutable_prompts()->set_eval((scratch_.path() / "b.txt").string());
  EXPECT_THAT(Said("prompts.eval"), HasSubstr("2 of 3 held-out prompts are trained on, too"));
}

// 8 x 20 pixels, of which each sample brings one latent in float32.
TEST_F(CheckFilesTest, ASinkThatHoldsLessThanAStepsGroupsIsRefusedBeforeTheLearnerDoes) {
  config_.mutable_model()->set_path(OXBOW_SOURCE_DIR "/models/digits");
  config_.mutable_model()->set_trained(v1::TRAINED_PART_FULL);
  config_.mutable_sampling()->set_height(8);
  config_.mutable_sampling()->set_width(20);
  config_.mutable_sampling()->set_storage(v1::STORAGE_D_TYPE_F32);
  config_.mutable_method()->set_name(v1::METHOD_NAME_NFT);
  config_.mutable_batch()->set_groups(3);
  config_.mutable_batch()->set_group_size(4);
  const uint64_t needed = 160 * 4 * 4 * 3 * 2;
  config_.mutable_services()->set_sink_bytes_max(needed);
  EXPECT_EQ(Said("services.sink_bytes_max"), "");
  config_.mutable_services()->set_sink_bytes_max(needed - 1);
  EXPECT_EQ(Said("services.sink_bytes_max"),
            "is too small for the groups of a step: 15359, needs 15360\n");
}

TEST_F(CheckFilesTest, ANegativePromptThatNothingLeadsAwayFromIsSaid) {
  config_.mutable_model()->set_path(OXBOW_SOURCE_DIR "/models/digits");
  config_.mutable_model()->set_trained(v1::TRAINED_PART_FULL);
  config_.mutable_sampling()->set_height(8);
  config_.mutable_sampling()->set_width(20);
  config_.mutable_sampling()->set_negative_prompt("dust");
  for (const double guidance : {0., 0.5, 1.}) {
    config_.mutable_sampling()->set_guidance(guidance);
    EXPECT_THAT(Said("sampling.negative_prompt"), HasSubstr("is not used"));
    EXPECT_EQ(Said("sampling.guidance"), "");
  }
  config_.mutable_sampling()->set_guidance(2);
  EXPECT_EQ(Said("sampling.negative_prompt"), "");
}

TEST_F(CheckFilesTest, GraphsNeedABuildThatHasThem) {
  config_.mutable_model()->set_cuda_graphs(v1::CUDA_GRAPHS_TRUE);
  if (model::HasCudaGraphs()) {
    EXPECT_EQ(Said("model.cuda_graphs"), "");
  } else {
    EXPECT_THAT(Said("model.cuda_graphs"), HasSubstr("-DOXBOW_CUDA=ON"));
  }
}

// Promise: A bad config does not start.
TEST_F(CheckFilesTest, AGpuNeedsABuildThatHasIt) {
  config_.mutable_model()->set_device("cpu");
  EXPECT_EQ(Said("model.device"), "");
  if (model::GpuCount() > 0) return;
  config_.mutable_model()->set_device("cuda");
  EXPECT_THAT(Said("model.device"), HasSubstr(": cuda\n"));
  config_.mutable_model()->set_encoder_device("cuda:3");
  EXPECT_THAT(Said("model.encoder_device"), HasSubstr(": cuda:3\n"));
}

TEST(CheckGpusTest, RanksAndMembersOfABroadcastNeedAGpuEach) {
  v1::RunConfig config;
  config.mutable_learner()->set_ranks(2);
  config.mutable_services()->set_rollout_workers(2);
  config.mutable_publish()->set_transport(v1::TRANSPORT_BROADCAST);
  config.mutable_model()->set_device("cpu");
  EXPECT_TRUE(CheckGpus(config, 1).empty());
  config.mutable_model()->set_device("cuda");
  EXPECT_TRUE(CheckGpus(config, 4).empty());
  const auto few = CheckGpus(config, 3);
  ASSERT_EQ(few.size(), 1u);
  EXPECT_EQ(few[0].key, "publish.transport");
  EXPECT_EQ(few[0].severity, config::Severity::kWarning);
  EXPECT_THAT(few[0].message, HasSubstr("2 + 2 processes, this machine has 3 GPUs"));
  const auto one = CheckGpus(config, 1);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].key, "learner.ranks");
  EXPECT_EQ(one[0].severity, config::Severity::kError);
  config.mutable_publish()->set_transport(v1::TRANSPORT_RELAY);
  EXPECT_TRUE(CheckGpus(config, 2).empty()) << "workers may share a GPU";
}

TEST_F(CheckFilesTest, ARankWiderThanTheAdaptedLayersIsSaid) {
  config_.mutable_model()->set_path(OXBOW_SOURCE_DIR "/models/digits");
  config_.mutable_model()->set_trained(v1::TRAINED_PART_LORA);
  config_.mutable_sampling()->set_height(8);
  config_.mutable_sampling()->set_width(20);
  config_.mutable_model()->mutable_lora()->add_targets("attn.to_q");
  config_.mutable_model()->mutable_lora()->set_rank(1);
  const auto useful = static_cast<uint32_t>(run::ReadModelFacts(config_)->lora_rank_useful);
  ASSERT_GT(useful, 1u);
  config_.mutable_model()->mutable_lora()->set_rank(useful);
  EXPECT_EQ(Said("model.lora.rank"), "");
  config_.mutable_model()->mutable_lora()->set_rank(useful + 1);
  EXPECT_THAT(Said("model.lora.rank"),
              HasSubstr("narrowest adapted layer has, " + std::to_string(useful)));
}

// Promise: A bad config does not start.
TEST_F(CheckFilesTest, ASizeThatTheModelCannotDrawIsRefusedBeforeTheLearnerDoes) {
  config_.mutable_model()->set_path(OXBOW_SOURCE_DIR "/models/digits");
  config_.mutable_model()->set_trained(v1::TRAINED_PART_FULL);
  config_.mutable_sampling()->set_height(8);
  config_.mutable_sampling()->set_width(21);
  EXPECT_THAT(Said("sampling.height"), HasSubstr("height and width must be multiples of 4"));
  EXPECT_EQ(Said("model.path"), "") << "the size is at fault";
}

// Promise: An adapter needs no list of layers.
TEST_F(CheckFilesTest, AnAdapterOfAnyArchitectureNeedsNoTargets) {
  config_.mutable_model()->set_trained(v1::TRAINED_PART_LORA);
  config_.mutable_model()->mutable_lora()->set_rank(2);
  for (const char* model : {"digits", "digits_flux", "clip"}) {
    config_.mutable_model()->set_path(std::string(OXBOW_SOURCE_DIR "/models/") + model);
    const auto facts = run::ReadModelFacts(config_);
    ASSERT_TRUE(facts.ok()) << model << ": " << facts.status();
    EXPECT_GT(facts->adapted_parameters, 0u) << model;
    EXPECT_EQ(Said("model.lora.targets"), "") << model;
  }
  config_.mutable_model()->mutable_lora()->add_targets("attn.add_q_proj");
  EXPECT_THAT(Said("model.lora.targets"), HasSubstr("matches no linear layer")) << "of a clip";
}

// With `--gpus` nobody asks whether this machine has them.
TEST_F(CheckFilesTest, ARunForAnotherMachineIsCheckedForItsGpus) {
  config_.mutable_model()->set_path(OXBOW_SOURCE_DIR "/models/digits");
  config_.mutable_model()->set_device("cuda");
  config_.mutable_model()->set_encoder_device("cuda");
  config_.mutable_learner()->set_ranks(8);
  config_.mutable_services()->set_host("192.0.2.1");  // RFC 5737: of nobody.
  const auto keys = [&](int gpus) {
    std::set<std::string> keys;
    for (const config::Problem& problem : CheckRunOn(gpus, config_)) keys.insert(problem.key);
    return keys;
  };
  EXPECT_FALSE(keys(8).contains("model.device"));
  EXPECT_FALSE(keys(8).contains("model.encoder_device"));
  EXPECT_FALSE(keys(8).contains("learner.ranks"));
  EXPECT_FALSE(keys(8).contains("services.host"));
  EXPECT_TRUE(keys(4).contains("learner.ranks"));
}

TEST_F(CheckFilesTest, AnAddressThatThisMachineHasNotIsRefused) {
  config_.mutable_services()->set_host("192.0.2.1");
  EXPECT_THAT(Said("services.host"), HasSubstr("address of this machine, got 192.0.2.1"));
  for (const config::Problem& problem : CheckRun(config_)) {
    if (problem.key == "services.host") {
      EXPECT_EQ(problem.code, absl::StatusCode::kInvalidArgument);
    }
  }
  for (const char* host : {"127.0.0.1", "0.0.0.0", "localhost", "::1", "[::1]"}) {
    config_.mutable_services()->set_host(host);
    EXPECT_EQ(Said("services.host"), "") << host;
  }
}

TEST_F(CheckFilesTest, APlaceThatTakesNoCopyOfACheckpointIsSaid) {
  Write("file", "");
  const std::filesystem::path fresh = scratch_.path() / "new";
  for (const std::string& place : {fresh.string(), fresh.string() + "/"}) {
    config_.mutable_checkpoint()->set_copy_to(place);
    EXPECT_EQ(Said("checkpoint.copy_to"), "") << place;
  }
  EXPECT_FALSE(std::filesystem::exists(fresh)) << "looking leaves nothing";
  config_.mutable_checkpoint()->set_copy_to(fresh / "deep");  // As of a disk that is not mounted.
  EXPECT_THAT(Said("checkpoint.copy_to"), HasSubstr(fresh.string() + " is no directory: mount"));
  config_.mutable_checkpoint()->set_copy_to(scratch_.path() / "file/deep");
  EXPECT_THAT(Said("checkpoint.copy_to"), HasSubstr("file is no directory"));
  for (const std::string& none : {(scratch_.path() / "file").string(), std::string("/proc/x")}) {
    config_.mutable_checkpoint()->set_copy_to(none);
    EXPECT_THAT(Said("checkpoint.copy_to"),
                HasSubstr(none + " is no directory that may be written to"));
  }
  config_.mutable_checkpoint()->set_copy_to("command: true {}");
  EXPECT_EQ(Said("checkpoint.copy_to"), "");
}

TEST_F(CheckFilesTest, ARewardOfAnotherServerNeedsItsAddress) {
  config_.mutable_reward()->add_terms()->set_name("deqa");
  EXPECT_THAT(Said("reward.terms"), AllOf(HasSubstr("give reward.endpoints"),
                                          HasSubstr("reward.proto"), HasSubstr("(deqa)")));
  config_.mutable_reward()->add_endpoints("scores:7070");
  EXPECT_EQ(Said("reward.terms"), "");
  config_.mutable_reward()->clear_endpoints();
  config_.mutable_reward()->mutable_terms(0)->set_name("digits_orc");
  EXPECT_THAT(Said("reward.terms"), HasSubstr("did you mean `digits_ocr`?"));
}

TEST_F(CheckFilesTest, AnEntryOfAScorerIsChecked) {
  v1::ScorerConfig& scorer = *config_.mutable_reward()->add_scorers();
  scorer.set_name("digits_ocr");
  config_.mutable_reward()->clear_terms();
  config_.mutable_reward()->add_terms()->set_name("digits_ocr");
  EXPECT_EQ(Said("reward.scorers"), "");
  scorer.set_model("no/such/directory");
  EXPECT_THAT(Said("reward.scorers"), HasSubstr("takes no key `model`"));
  config_.mutable_reward()->add_endpoints("scores:7070");  // It is the run's own all the same.
  EXPECT_THAT(Said("reward.scorers"), HasSubstr("takes no key `model`"));
}

// The keys that docs/recipes.md names for a recipe: one for each directory of its rewards.
struct RecipeKeys {
  std::string recipe;  // And its variants.
  std::vector<std::string> keys;
};

void ExpectOnlyDirectory(const std::string& directory, const std::string& recipe,
                         const std::vector<std::string>& keys) {
  std::vector<std::string> overrides = {"recipe=" + recipe};
  for (const std::string& key : keys) overrides.push_back(key + directory);
  const auto loaded = config::LoadRunConfig({}, overrides, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const v1::RewardConfig& config = loaded->config.reward();
  for (const std::string& name : run::RewardNames(config)) {
    v1::ScorerConfig entry = run::ScorerOf(config, name);
    entry.clear_device();  // This build may have none.
    EXPECT_THAT(entry.model(), AnyOf("", directory)) << recipe << ": " << name;
    EXPECT_THAT(entry.head(), AnyOf("", directory)) << recipe << ": " << name;
    EXPECT_EQ(reward::CheckScorer(entry), absl::OkStatus()) << recipe;
  }
}

TEST_F(CheckFilesTest, TheKeysOfTheRecipesPageNameEveryDirectoryOfTheirRewards) {
  const std::string page = *ReadFile(OXBOW_SOURCE_DIR "/docs/recipes.md");
  ASSERT_TRUE(WriteFileAtomically(scratch_.path() / "vocab.json", "{}").ok());  // A tokenizer.
  const auto model = [](const std::string& name) { return "reward.scorers." + name + ".model="; };
  const std::vector<RecipeKeys> rows = {
      {"sd35m-geneval", {model("geneval"), "reward.scorers.geneval.head="}},
      {"sd35m-ocr", {}},
      {"sd35m-pickscore", {model("pickscore")}},
      {"sd35l-pickscore", {model("pickscore")}},
      {"flux-dev-pickscore", {model("pickscore")}},
      {"flux-dev-geneval-fast", {model("geneval"), "reward.scorers.geneval.head="}},
      {"flux-dev-flow-factory", {model("pickscore_rank"), model("pickscore")}},
      {"flux-dev-dance", {model("hpsv2")}},
      {"flux-dev-branch", {model("hpsv2")}},
      {"flux-dev-v-grpo", {model("hpsv2"), model("pickscore"), model("imagereward")}},
      {"flux-dev-mixgrpo", {model("hpsv2"), model("pickscore"), model("imagereward")}},
      {"sd35m-v-grpo-1", {model("hpsv2"), model("pickscore"), model("imagereward")}},
      {"sd35m-v-grpo-2", {model("geneval"), "reward.scorers.geneval.head="}},
      {"sd35m-v-grpo-5", {}},
      {"sd35m-nft", {model("geneval"), "reward.scorers.geneval.head="}},
      {"wan21-ocr", {}},
      {"wan21-flow-factory", {model("clipscore"), model("pickscore")}}};
  for (const RecipeKeys& row : rows) {
    EXPECT_THAT(page, HasSubstr("`" + row.recipe + "`"));
    for (const std::string& key : row.keys) EXPECT_THAT(page, HasSubstr("`" + key + "`"));
    for (const auto& [name, text] : config::Recipes()) {
      if (name.starts_with(row.recipe)) ExpectOnlyDirectory(scratch_.path(), name, row.keys);
    }
  }
  const std::string ppocr = "reward.scorers=[{name: ocr, engine: ppocr, model: DIRECTORY}]";
  EXPECT_THAT(page, HasSubstr("`'" + ppocr + "'`"));
  const auto read = config::LoadRunConfig(
      {},
      {"recipe=sd35m-ocr", absl::StrReplaceAll(ppocr, {{"DIRECTORY", scratch_.path().string()}})},
      {});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(reward::CheckScorer(run::ScorerOf(read->config.reward(), "ocr")), absl::OkStatus());
}

// Promise: A bad config does not start.
TEST_F(CheckFilesTest, ATrajectoryThatFitsIntoNoEntryOfTheBufferIsRefusedInOneLine) {
  config_.mutable_model()->set_path(OXBOW_SOURCE_DIR "/models/digits");
  config_.mutable_model()->set_trained(v1::TRAINED_PART_FULL);
  config_.mutable_sampling()->set_height(8);
  config_.mutable_sampling()->set_width(20);
  config_.mutable_replay()->set_fraction(0.25);
  config_.mutable_sampling()->set_storage(v1::STORAGE_D_TYPE_F32);
  config_.mutable_batch()->set_groups(3);
  const run::ModelFacts facts = run::ReadModelFacts(config_).value();
  const uint64_t latent = 160 * 4;
  const uint64_t others = facts.conditioning_bytes + io::PreviewBytesAbout(20, 8, /*frames=*/0);
  const auto limit = static_cast<uint32_t>(((128ull << 20) - others) / latent - 1);
  const auto says = [&](uint32_t steps) {
    config_.mutable_sampling()->set_sde_count(steps);
    return Said("sampling.sde_count");
  };
  EXPECT_EQ(says(limit), "");
  EXPECT_THAT(says(limit + 1), HasSubstr("sampling.storage, or set replay.fraction to 0: " +
                                         std::to_string((limit + 2) * latent + others) +
                                         " bytes with its conditioning, limit 134217728"));
  config_.mutable_batch()->set_groups(100000);
  EXPECT_EQ(says(limit), "") << "a step offers in as many calls as it needs";
  config_.mutable_replay()->set_fraction(0);
  EXPECT_EQ(says(limit + 1), "") << "nothing is offered";
}

}  // namespace
}  // namespace oxbow::cli
