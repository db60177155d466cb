// SPDX-License-Identifier: Apache-2.0
// Published Flow-Factory files, in a shortened form, become runs that pass our rules. Nothing is
// dropped silently. What would make a different run is refused, with its place.
#include "config/import/flow_factory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "config/import/flow_factory_keys.h"
#include "config/import/foreign_settings.h"
#include "config/validate.h"

namespace oxbow::config {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::filesystem::path kData = OXBOW_SOURCE_DIR "/src/config/import/testdata";

std::string TextOf(const std::string& file) { return ReadFile(kData / file).value(); }

ImportedRun Imported(const std::string& text, const std::string& name = "theirs.yaml") {
  auto run = ImportFlowFactory(text, name);
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? *std::move(run) : ImportedRun();
}

const std::string kGrpo = "sd3_5_grpo.yaml";

// The published file with one line replaced, or `to` put in place of `from` anywhere.
ImportedRun Changed(const std::string& from, const std::string& to) {
  const std::string text = TextOf(kGrpo);
  EXPECT_NE(text.find(from), std::string::npos) << from;
  return Imported(absl::StrReplaceAll(text, {{from, to}}));
}

class PublishedFileTest : public ::testing::TestWithParam<const char*> {};

// OXBOW_WRITE_GOLDENS=1 writes the expected files again; read the difference before you commit it.
TEST_P(PublishedFileTest, BecomesARunThatPassesOurRules) {
  const std::string file = absl::StrCat(GetParam(), ".yaml");
  const ImportedRun run = Imported(TextOf(file), file);
  EXPECT_THAT(run.problems, IsEmpty());
  EXPECT_THAT(run.unknown, IsEmpty());
  const std::string yaml = ImportedYaml(run, file);
  const std::filesystem::path golden = kData / absl::StrCat(GetParam(), ".expected");
  if (std::getenv("OXBOW_WRITE_GOLDENS") != nullptr) {
    ASSERT_TRUE(WriteFileAtomically(golden, yaml).ok());
  }
  EXPECT_EQ(yaml, ReadFile(golden).value());

  const std::filesystem::path written =
      std::filesystem::path(::testing::TempDir()) / absl::StrCat(GetParam(), "_run.yaml");
  ASSERT_TRUE(WriteFileAtomically(written, yaml).ok());
  const auto read = LoadRunConfig(written, {}, {});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->config.SerializeAsString(), run.resolved.config.SerializeAsString());
  EXPECT_EQ(FirstError(Validate(read->config), read->provenance), absl::OkStatus());
}

INSTANTIATE_TEST_SUITE_P(FlowFactoryTest, PublishedFileTest,
                         ::testing::Values("sd3_5_grpo", "sd3_5_first_schema", "sd3_5_nft",
                                           "sd3_5_awm", "sd3_5_geneval_cps", "flux1_grpo",
                                           "wan21_grpo", "qwen_image_grpo", "z_image_grpo"),
                         [](const auto& info) { return std::string(info.param); });

TEST(FlowFactoryTest, ValuesArriveWhereTheyBelong) {
  const v1::RunConfig c = Imported(TextOf(kGrpo), kGrpo).resolved.config;
  EXPECT_EQ(c.run().name(), "sd3_5_grpo");
  EXPECT_EQ(c.run().seed(), 42u);
  EXPECT_EQ(c.model().lora().alpha(), 64);
  EXPECT_EQ(c.prompts().train(), "dataset/pickscore");
  EXPECT_EQ(c.prompts().eval(), "dataset/pickscore");
  EXPECT_EQ(c.sampling().dynamics(), v1::DYNAMICS_KIND_FLOW_SDE);
  EXPECT_EQ(c.sampling().schedule(), v1::SCHEDULE_KIND_LINSPACE);
  EXPECT_EQ(c.sampling().eta(), 0.8);
  EXPECT_EQ(c.sampling().guidance(), 4.5);
  EXPECT_EQ(c.sampling().storage(), v1::STORAGE_D_TYPE_F16) << "their default";
  EXPECT_EQ(c.sampling().sde_first(), 1u);
  EXPECT_EQ(c.sampling().sde_count(), 5u);
  EXPECT_EQ(c.sampling().window().kind(), v1::WINDOW_KIND_SUBSET);
  EXPECT_EQ(c.sampling().window().size(), 2u);
  EXPECT_EQ(c.batch().groups(), 48u);
  EXPECT_EQ(c.batch().group_size(), 24u);
  EXPECT_EQ(c.batch().updates(), 2u);
  EXPECT_EQ(c.method().advantage_std(), v1::ADVANTAGE_STD_GLOBAL);
  EXPECT_EQ(c.method().clip_range(), 1e-4);
  EXPECT_EQ(c.replay().fraction(), 0);
  EXPECT_EQ(c.optimizer().learning_rate(), 3e-4);
  EXPECT_EQ(c.eval().steps(), 40u);
  ASSERT_EQ(c.reward().terms_size(), 1);
  EXPECT_EQ(c.reward().terms(0).name(), "pick_score");
  EXPECT_NEAR(std::pow(c.ema().decay_max(), 8), 0.99, 1e-5) << "four epochs of two updates";
}

// The recipe of a published file is the import of that file, but for names, places and memory.
void ExpectRecipe(const std::string& file, const std::string& name) {
  const ImportedRun run = Imported(TextOf(file), file);
  ASSERT_THAT(run.problems, IsEmpty());
  const v1::RunConfig& c = run.resolved.config;
  v1::RunConfig recipe = LoadRunConfig({}, {"recipe=" + name}, {})->config;
  const auto targets = [](const v1::RunConfig& config) {
    return std::set<std::string>(config.model().lora().targets().begin(),
                                 config.model().lora().targets().end());
  };
  EXPECT_EQ(targets(c), targets(recipe));
  EXPECT_EQ(c.model().lora().rank(), recipe.model().lora().rank());
  EXPECT_EQ(c.model().lora().alpha(), recipe.model().lora().alpha());
  EXPECT_NEAR(c.ema().decay_max(), recipe.ema().decay_max(), 1e-6);
  EXPECT_EQ(c.sampling().ShortDebugString(), recipe.sampling().ShortDebugString());
  EXPECT_EQ(c.method().ShortDebugString(), recipe.method().ShortDebugString());
  EXPECT_EQ(c.optimizer().ShortDebugString(), recipe.optimizer().ShortDebugString());
  EXPECT_EQ(c.batch().ShortDebugString(), recipe.batch().ShortDebugString());
}

TEST(FlowFactoryTest, GuidanceOfFluxIsAnInputOfItsNetwork) {
  const v1::RunConfig c = Imported(TextOf("flux1_grpo.yaml"), "flux1_grpo.yaml").resolved.config;
  EXPECT_EQ(c.sampling().embedded_guidance(), 3.5);
  EXPECT_EQ(c.sampling().guidance(), 1);
  EXPECT_EQ(c.prompts().t5_length(), 512u);
  EXPECT_EQ(c.model().lora().targets_size(), 12);
  ExpectRecipe("flux1_grpo.yaml", "flux-dev-flow-factory");
}

TEST(FlowFactoryTest, OtherModelsBecomeTheirRecipes) {
  ExpectRecipe("wan21_grpo.yaml", "wan21-flow-factory");
  ExpectRecipe("qwen_image_grpo.yaml", "qwen-image-flow-factory");
  ExpectRecipe("z_image_grpo.yaml", "z-image-flow-factory");
}

TEST(FlowFactoryTest, EveryGivenKeyIsCarriedOverOrNamed) {
  const std::string text = TextOf(kGrpo);
  const std::string said = ImportedYaml(Imported(text, kGrpo), kGrpo);
  // These keys need no message, or their neighbour's message covers them.
  const std::set<std::string> silent = {"num_processes",
                                        "data.datasets[0].eval",
                                        "model.target_modules",
                                        "model.model_type",
                                        "model.resume_path",
                                        "log.run_name",
                                        "train.kl_type",

                                        "train.gradient_accumulation_steps",
                                        "train.ema_update_interval",
                                        "eval.resolution",
                                        "eval.guidance_scale",
                                        "rewards[0].reward_model",
                                        "eval_rewards[0].name",
                                        "eval_rewards[0].reward_model",
                                        "eval_rewards[0].batch_size",
                                        "eval_rewards[0].device",
                                        "eval_rewards[0].dtype",
                                        "rewards[0].device",
                                        "rewards[0].dtype"};
  const auto values = FlattenYaml(text, {.name = kGrpo, .has_lines = true}, FlowFactoryLists());
  ASSERT_TRUE(values.ok()) << values.status();
  for (const ForeignValue& value : *values) {
    if (silent.contains(value.path)) continue;
    EXPECT_THAT(said, HasSubstr(value.path)) << value.place;
  }
}

struct Case {
  const char* name;
  const char* from;
  const char* to;
  const char* problem;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class RefusedTest : public ::testing::TestWithParam<Case> {};

TEST_P(RefusedTest, WithItsPlace) {
  const ImportedRun run = Changed(GetParam().from, GetParam().to);
  EXPECT_THAT(run.problems, Contains(HasSubstr(GetParam().problem)));
  for (const std::string& line : run.problems) {
    EXPECT_THAT(line, HasSubstr("theirs.yaml:"));
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  }
}

INSTANTIATE_TEST_SUITE_P(
    FlowFactoryTest, RefusedTest,
    ::testing::Values(
        Case{"TextForNumber", "noise_level: 0.8", "noise_level: some",
             "scheduler.noise_level: expected a number, got some"},
        Case{"FractionForCount", "group_size: 24", "group_size: 2.5",
             "train.group_size: expected a whole number, got 2.5"},
        Case{"ListForFlag", "global_std: true", "global_std: [true]",
             "train.global_std: expected true or false"},
        Case{"ThreeForRange", "clip_range: 1.0e-4", "clip_range: [1, 2, 3]",
             "train.clip_range: expected a number or a list of two"},
        Case{"ListForText", "project: \"Flow-Factory\"", "project: [a, b]",
             "log.project: expected text, got [a, b]"},
        Case{"Model", "model_type: \"sd3-5\"", "model_type: flux2",
             "model.model_type: models here are Stable Diffusion 3"},
        Case{"Trainer", "trainer_type: 'grpo'", "trainer_type: dpo",
             "train.trainer_type: has no counterpart here; known: grpo, grpo-guard, nft, awm"},
        Case{"Video", "resolution: 512\n  num", "resolution: 512\n  num_frames: 33\n  num",
             "train.num_frames: is for videos, and this model draws images"},
        Case{"Resume", "resume_path: null", "resume_path: x/y", "model.resume_path"},
        Case{"KlOfLatents", "kl_type: 'v-based'\n  kl_beta: 0",
             "kl_type: 'x-based'\n  kl_beta: 0.01", "train.kl_type: their distance of latents"},
        Case{"Gaps", "sde_steps: [1, 2, 3, 4, 5]", "sde_steps: [1, 3, 5]",
             "scheduler.sde_steps: steps are drawn from a range without gaps"},
        Case{"BeyondTheEnd", "sde_steps: [1, 2, 3, 4, 5]", "sde_steps: [1, 12]",
             "there are no steps beyond 10 - 1"},
        Case{"NoStep", "num_sde_steps: 2", "num_sde_steps: 0", "at least one stochastic step"},
        Case{"OdeHasNoDensity", "dynamics_type: \"Flow-SDE\"", "dynamics_type: ODE",
             "scheduler.dynamics_type: becomes sampling.dynamics: ode has no density"},
        Case{"Accumulation", "gradient_accumulation_steps: auto", "gradient_accumulation_steps: 7",
             "an update of 448 images"},
        Case{"TwoSources", "      eval: {}\n",
             "      eval: {}\n    - {name: ocr, dataset_dir: dataset/ocr}\n",
             "data.datasets[1].dataset_dir: there is one source of prompts"},
        Case{"TwoPolicies", "    max_grad_norm: 1.0\n",
             "    max_grad_norm: 1.0\n  - {name: b, learning_rate: 1}\n",
             "optimizers[1].learning_rate: one policy"},
        Case{"WeightPerSource", "    batch_size: 16\n",
             "    batch_size: 16\n    weight: {ocr: 1, geneval: 2}\n",
             "rewards[0].weight.ocr: a reward has one weight"},
        Case{"OurRule", "group_size: 24", "group_size: 1",
             "train.group_size: becomes batch.group_size: must be at least 2"}),
    [](const auto& info) { return std::string(info.param.name); });

// The published file with other rewards.
ImportedRun WithRewards(const std::string& rewards) {
  std::string text = TextOf(kGrpo);
  const size_t begin = text.find("\nrewards:"), end = text.find("\noptimizers:");
  text.replace(begin, end - begin, "\n" + rewards);
  return Imported(text);
}

TEST(FlowFactoryRewardsTest, EachKindBecomesAnEntry) {
  const ImportedRun run = WithRewards(R"(
rewards:
  - {name: pick, reward_model: PickScore, dtype: float16, device: "cuda:1", weight: 0.5}
  - {name: ranks, reward_model: PickScore_Rank, batch_size: 16}
  - {name: clip, reward_model: CLIP}
  - {reward_model: OCR}
  - {name: style, reward_model: flow_factory.rewards.my_reward_remote.RemotePointwiseRewardModel,
     server_url: "http://localhost:8000", batch_size: 8, timeout: 60.0, retry_attempts: 3}
  - {name: rank, reward_model: flow_factory.rewards.remote.RemoteGroupwiseRewardModel, server_url: "http://b:1"}
eval_rewards:
  - {name: pick, reward_model: PickScore}
  - {name: judge, reward_model: vllm_evaluate, api_base_url: "http://j/v1", api_key: "sk-secret",
     vlm_model: Qwen, max_concurrent: 1000, top_logprobs: 20}
  - {name: "mine\"\\", reward_model: my_rewards.HPSv2RewardModel, batch_size: 4}
)");
  ASSERT_THAT(run.problems, IsEmpty());
  const v1::RewardConfig& r = run.resolved.config.reward();
  ASSERT_EQ(r.terms_size(), 6);
  EXPECT_EQ(r.terms(0).weight(), .5);
  EXPECT_EQ(r.terms(3).name(), "OCR");
  EXPECT_THAT(r.observed(), ElementsAre("judge", "mine\"\\"));
  std::vector<std::string> entries;
  for (const v1::ScorerConfig& entry : r.scorers()) entries.push_back(entry.ShortDebugString());
  EXPECT_THAT(
      entries,
      ElementsAre(
          R"(name: "pick" scorer: "pickscore" model: "yuvalkirstain/PickScore_v1" )"
          R"(device: "cuda:1" dtype: "f16")",
          R"(name: "ranks" scorer: "pickscore_rank" model: "yuvalkirstain/PickScore_v1" )"
          R"(device: "cuda" dtype: "bf16")",
          R"(name: "clip" scorer: "clipscore" model: "openai/clip-vit-large-patch14" )"
          R"(device: "cuda" dtype: "bf16" variant: "flow_factory")",
          R"(name: "OCR" scorer: "ocr" model: "PaddlePaddle/PP-OCRv5_server" )"
          R"(device: "cuda" variant: "flow_factory" engine: "ppocr")",
          R"(name: "style" variant: "pointwise" kind: "json" url: "http://localhost:8000" batch_max: 8 timeout_seconds: 60)",
          R"(name: "rank" variant: "groupwise" kind: "json" url: "http://b:1")",
          R"(name: "judge" variant: "yes_no" kind: "vlm" url: "http://j/v1" llm: "Qwen" concurrency: 256)"));
  EXPECT_EQ(r.timeout_seconds(), 70);
  EXPECT_THAT(run.differences,
              Contains(HasSubstr("no reward of this build: a server at reward.endpoints")));
  EXPECT_THAT(run.differences,
              Contains(HasSubstr("with the networks `det` and `rec` of PP-OCRv5")));
  EXPECT_THAT(run.differences, Contains(HasSubstr("key_file")));
  EXPECT_THAT(ImportedYaml(run, "x"), ::testing::Not(HasSubstr("sk-secret")));
}

TEST(FlowFactoryRewardsTest, WhatCannotBeTheSameIsRefused) {
  const auto problem = [](const std::string& entry) {
    return absl::StrJoin(WithRewards("rewards:\n  - {" + entry + "}\n").problems, "; ");
  };
  EXPECT_THAT(
      problem("name: a, reward_model: x.RemotePointwiseRewardModel"),
      HasSubstr("rewards[0].server_url (their default): a remote reward needs its server_url"));
  EXPECT_THAT(problem("name: a, reward_model: PickScore, dtype: int8"),
              HasSubstr("expected float32"));
  EXPECT_THAT(problem("name: a, reward_model: vllm_evaluate, canonicalize: true"),
              HasSubstr("the tokens Yes and No alone"));
  EXPECT_THAT(problem("name: a, reward_model: vllm_evaluate, top_logprobs: 5"),
              HasSubstr("the 20 likeliest"));
  EXPECT_THAT(problem("weight: 2"), HasSubstr("a reward needs a name"));
}

TEST(FlowFactoryTest, UnknownKeysAreNamedWithTheirPlaceAndNearestName) {
  const ImportedRun run = Changed("  noise_level: 0.8\n", "  noise_levle: 0.8\n  zzz_new_key: 1\n");
  EXPECT_THAT(run.unknown,
              ElementsAre(AllOf(HasSubstr("theirs.yaml:69: scheduler.noise_levle: "),
                                HasSubstr("did you mean `scheduler.noise_level`?")),
                          HasSubstr("theirs.yaml:70: scheduler.zzz_new_key: not a key")));
  EXPECT_THAT(ImportedYaml(run, "x"), HasSubstr("# Unknown, and left out:"));
}

TEST(FlowFactoryTest, WhatIsNoYamlOfSectionsIsAnError) {
  const auto message = [](const std::string& text) {
    return std::string(ImportFlowFactory(text, "a.yaml").status().message());
  };
  EXPECT_THAT(message("train: [a"), HasSubstr("a.yaml:"));
  EXPECT_THAT(message("- a\n"), HasSubstr("expected sections"));
  EXPECT_THAT(message("train: {seed: 1, seed: 2}\n"), HasSubstr("train.seed: the key is given tw"));
  EXPECT_THAT(message("rewards: 3\n"), HasSubstr("rewards: expected a list of sections"));
  EXPECT_THAT(message("train: {seed: [[1]]}\n"), HasSubstr("expected a list of plain values"));
}

TEST(FlowFactoryTest, NewNamesWinOverOldOnes) {
  const ImportedRun run = Changed("  seed: 42\n\nscheduler:",
                                  "  seed: 42\n  learning_rate: 7\n  sde_type: CPS\n\nscheduler:");
  EXPECT_EQ(run.resolved.config.optimizer().learning_rate(), 3e-4);
  EXPECT_EQ(run.resolved.config.sampling().dynamics(), v1::DYNAMICS_KIND_FLOW_SDE);
}

TEST(FlowFactoryTest, EveryRowOfTheTableLeadsSomewhere) {
  const std::vector<std::string> leaves = LeafKeys(*v1::RunConfig::descriptor());
  const std::set<std::string> ours(leaves.begin(), leaves.end());
  std::set<std::string> seen;
  for (const ForeignKey& row : FlowFactoryKeys()) {
    EXPECT_TRUE(seen.insert(row.key).second) << row.key;
    if (row.use == ForeignUse::kTaken) {
      EXPECT_TRUE(ours.contains(row.text)) << row.key;
    }
    if (row.use == ForeignUse::kNeedless) {
      EXPECT_NE(std::string(row.text), "") << row.key;
    }
    if (row.use == ForeignUse::kOldName) {
      const ForeignKey* const now =
          FindFlowFactoryKey(absl::StrReplaceAll(row.text, {{"[0]", "[]"}}));
      ASSERT_NE(now, nullptr) << row.key;
      EXPECT_NE(now->use, ForeignUse::kOldName) << row.key;
    }
  }
}

}  // namespace
}  // namespace oxbow::config
