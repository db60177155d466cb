// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>

#include "base/file.h"
#include "base/memory_limits.h"
#include "base/sha256.h"
#include "cli/plan/machine_load.h"
#include "cli/plan/resource_plan.h"
#include "cli/plan/validate.h"
#include "config/run_config.h"
#include "core/model/decoder_architecture.h"
#include "core/model/velocity_model.h"
#include "io/graph_files.h"
#include "run/sampling_spec.h"
#include "services/buffer/replay_client.h"
#include "tests/testing/graph_architecture.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

v1::RunConfig Config(const std::vector<std::string>& overrides = {}) {
  const auto resolved =
      config::LoadRunConfig(OXBOW_SOURCE_DIR "/configs/recipes/digits-op-grpo.yaml", overrides, {});
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  return resolved->config;
}

constexpr uint64_t kMillion = 1'000'000;

run::ModelFacts Facts(uint64_t trained) {
  return {.transformer_parameters = 10 * kMillion,
          .trained_parameters = trained,
          .text_encoder_bytes = 4 * kMillion,
          .schedule = {.shift = 3},
          .latent_shape = {1, 8, 20}};
}

std::shared_ptr<const model::Architecture> Sd35() {
  return testing::GraphArchitecture(testing::kSd35MediumGraph);
}

uint64_t BytesOf(const std::string& what, const std::vector<MemoryItem>& items) {
  for (const MemoryItem& item : items) {
    if (item.what == what) return item.bytes;
  }
  ADD_FAILURE() << what;
  return 0;
}

TEST(RunPlanTest, BatchArithmeticIsGroupsTimesSize) {
  const std::string text = BatchText(Config());
  EXPECT_THAT(text, HasSubstr("8 x 8 = 64 images"));
  EXPECT_THAT(text, HasSubstr("2 of 8 groups"));
  EXPECT_THAT(text, HasSubstr("32 of 64 images"));
  EXPECT_THAT(text, HasSubstr("100 steps, 200 updates, 6400 images"));
}

TEST(RunPlanTest, WhatTreesSaveIsSaid) {
  EXPECT_THAT(BatchText(Config()), Not(HasSubstr("trees")));
  EXPECT_THAT(BatchText(Config({"sampling.split_steps=[0,1,2]"})),
              HasSubstr("1 of 8 images in a group; 63 of 80 rows"));
  EXPECT_THAT(BatchText(Config({"sampling.split_steps=[4]", "batch.group_size=16"})),
              HasSubstr("8 of 2 images in a group; 120 of 160 rows"));
}

TEST(RunPlanTest, TheSizeOfWhatIsDrawnIsSaid) {
  run::ModelFacts facts = Facts(kMillion);
  EXPECT_THAT(PictureText(facts),
              HasSubstr("an image               8 x 20 pixels, latents [1, 8, 20]"));
  facts.factors = {.time = 4, .space = 8};
  facts.latent_shape = {16, 9, 30, 52};
  EXPECT_THAT(
      PictureText(facts),
      HasSubstr("a video                33 frames of 240 x 416 pixels, latents [16, 9, 30, 52]"));
}

TEST(RunPlanTest, AnEvaluationOfAnotherSizeIsSaidAndItsMemoryCounted) {
  run::ModelFacts facts = Facts(kMillion);
  facts.architecture = Sd35();
  facts.latent_shape = {16, 16, 16};
  facts.prompt_tokens = 205;
  const auto beyond = [&](const std::vector<std::string>& overrides) {
    return BytesOf("evaluation, beyond sampling", WorkerMemory(Config(overrides), facts));
  };
  facts.evaluated_shape = facts.latent_shape;
  EXPECT_THAT(PictureText(facts), Not(HasSubstr("in an evaluation")));
  EXPECT_EQ(beyond({"eval.every=1"}), 0u);
  facts.evaluated_shape = {16, 256, 256};
  EXPECT_THAT(PictureText(facts), HasSubstr("in an evaluation       256 x 256 pixels"));
  EXPECT_GT(beyond({"eval.every=1"}), 0u);
  EXPECT_EQ(beyond({"eval.every=0"}), 0u);
}

TEST(RunPlanTest, EvaluatedWeightsAreCountedWhereTheyAreOthersThanThosePublished) {
  const run::ModelFacts facts = Facts(kMillion);
  const auto learner = [&](const std::vector<std::string>& overrides) {
    return BytesOf("evaluated weights", LearnerMemory(Config(overrides), facts));
  };
  const auto worker = [&](const std::vector<std::string>& overrides) {
    return BytesOf("evaluated weights", WorkerMemory(Config(overrides), facts));
  };
  EXPECT_EQ(learner({"eval.every=1"}), 4 * kMillion);
  EXPECT_EQ(learner({"eval.every=0"}), 0u);
  EXPECT_EQ(worker({"eval.every=1"}), 4 * kMillion);
  EXPECT_EQ(worker({"eval.every=0"}), 0u);
  EXPECT_EQ(worker({"eval.every=1", "eval.use_ema=false"}), 0u);
}

TEST(RunPlanTest, WhetherTrainingWaitsForEvaluationsIsSaid) {
  EXPECT_EQ(EvaluationText(Config({"eval.every=0"})), "");
  EXPECT_THAT(EvaluationText(Config({"publish.reward_floor=0.5"})),
              HasSubstr("training waits for them, by checkpoint.best, publish.reward_floor"));
  EXPECT_THAT(EvaluationText(Config({"checkpoint.best="})),
              HasSubstr("training goes on meanwhile"));
  const auto stops = [](const std::string& metric) {
    return EvaluationText(
        Config({"checkpoint.best=", "run.stop_if=[{metric: " + metric + ", above: 1}]"}));
  };
  EXPECT_THAT(stops("train/reward_mean"), HasSubstr("training goes on meanwhile"));
  EXPECT_THAT(stops("eval/reward_mean"), HasSubstr("training waits for them, by run.stop_if"));
}

// Sizes that published models' autoencoders and text encoders make of a picture and a prompt.
struct ConditioningSize {
  const char* recipes;          // The beginning of their names.
  uint64_t text_width, pooled;  // Numbers of a token, and of the whole prompt.
  uint64_t further_tokens;      // CLIP's before those of T5.
};

constexpr ConditioningSize kConditioningSizes[] = {{"sd35", 4096, 2048, 77},
                                                   {"flux", 4096, 768, 0},
                                                   {"wan21", 4096, 0, 0},
                                                   {"qwen-image", 3584, 0, 0},
                                                   {"z-image", 2560, 0, 0}};

TEST(RunPlanTest, EveryRecipeHasRoomForItsExperience) {
  run::ModelFacts facts = Facts(kMillion);
  int published = 0;
  for (const auto& [name, text] : config::Recipes()) {
    const v1::RunConfig run = config::LoadRunConfig({}, {"recipe=" + name}, {}).value().config;
    const auto model =
        std::find_if(std::begin(kConditioningSizes), std::end(kConditioningSizes),
                     [&](const ConditioningSize& one) { return name.starts_with(one.recipes); });
    facts.latent_shape = {4, 32, 32};  // No embedded model has more.
    facts.conditioning_bytes = 4 * 64 * 512;
    if (model != std::end(kConditioningSizes)) {
      ++published;
      const v1::SamplingConfig& sampling = run.sampling();
      const int64_t moments = sampling.frames() == 0 ? 1 : (sampling.frames() - 1) / 4 + 1;
      facts.latent_shape = {16, moments, sampling.height() / 8, sampling.width() / 8};
      const uint64_t tokens = run.prompts().t5_length() + model->further_tokens;
      facts.conditioning_bytes = 4 * (tokens * model->text_width + model->pooled);
    }
    EXPECT_LE(run::SinkBytesNeeded(run, facts.latent_shape), run.services().sink_bytes_max())
        << name;
    const uint64_t entry =
        run::EntryBytes(run.sampling(), facts.latent_shape, facts.conditioning_bytes);
    EXPECT_GT(entry, facts.conditioning_bytes) << name;
    EXPECT_LE(entry, buffer::kEntryBytesMax) << name;
    EXPECT_LE(entry, buffer::kOfferCallBytes) << "a call takes several, " << name;
  }
  EXPECT_EQ(published, 50);
}

TEST(RunPlanTest, AConfiguredNumberOfKeptStepsBeatsTheRule) {
  const auto by_rule = RunPlanText(Config(), Facts(kMillion));
  ASSERT_TRUE(by_rule.ok()) << by_rule.status();
  EXPECT_THAT(*by_rule, HasSubstr("those with kc below 0.3 (method.kept_kc_max)"));
  const auto chosen = RunPlanText(Config({"method.kept_steps=2"}), Facts(kMillion));
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_THAT(*chosen, HasSubstr("trains its first 2 steps (i_off): method.kept_steps says so"));
}

TEST(RunPlanTest, StepsOutsideTheWindowAreOdeAndNeverKeptPastIt) {
  const auto text = RunPlanText(Config({"sampling.sde_count=1"}), Facts(kMillion));
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("first 1 steps (i_off)"));
  EXPECT_THAT(*text, HasSubstr("ode"));
  EXPECT_THAT(*text, Not(HasSubstr("ode  kept")));
}

TEST(RunPlanTest, FullFineTuningHoldsAReferenceIfALossReadsIt) {
  const auto reference = [](std::vector<std::string> settings) {
    return BytesOf("reference policy", LearnerMemory(Config(settings), Facts(10 * kMillion)));
  };
  EXPECT_EQ(reference({"method.kl_weight=0"}), 0u);
  EXPECT_EQ(reference({"method.kl_weight=0.01"}), 40 * kMillion);
  EXPECT_EQ(reference({"method.kl_weight=0", "method.anchor.weight=0.1"}), 40 * kMillion);
}

TEST(RunPlanTest, FullFineTuningHoldsAReferenceAndLoraHoldsTheBase) {
  const auto full = LearnerMemory(Config({"method.kl_weight=0.01"}), Facts(10 * kMillion));
  EXPECT_EQ(BytesOf("trained weights", full), 40 * kMillion);
  EXPECT_EQ(BytesOf("reference policy", full), 40 * kMillion);
  EXPECT_EQ(BytesOf("frozen weights", full), 0u);
  EXPECT_EQ(BytesOf("AdamW moments", full), 80 * kMillion);
  const auto lora = LearnerMemory(Config({"model.trained=lora"}), Facts(kMillion));
  EXPECT_EQ(BytesOf("trained weights", lora), 4 * kMillion);
  EXPECT_EQ(BytesOf("reference policy", lora), 0u);
  EXPECT_EQ(BytesOf("frozen weights", lora), 40 * kMillion);
  const auto no_average = LearnerMemory(Config({"ema.enabled=false"}), Facts(kMillion));
  EXPECT_EQ(BytesOf("running average", no_average), 0u);
}

TEST(RunPlanTest, RanksShareTheMomentsOfAFullFineTuneAlone) {
  const auto held = [](const std::string& what, std::vector<std::string> settings) {
    settings.insert(settings.end(), {"learner.ranks=4", "batch.updates=2"});
    return BytesOf(what, LearnerMemory(Config(settings), Facts(10 * kMillion)));
  };
  EXPECT_EQ(held("AdamW moments", {}), 20 * kMillion);
  EXPECT_EQ(held("summed gradient, beyond activations", {}), 10 * kMillion);
  EXPECT_EQ(held("copy to undo a step", {"ema.enabled=false"}), (40 + 20) * kMillion);
  for (const char* whole : {"model.memory=whole_optimizer", "model.trained=lora"}) {
    EXPECT_EQ(held("AdamW moments", {whole}), 80 * kMillion) << whole;
    EXPECT_EQ(held("summed gradient, beyond activations", {whole}), 0u) << whole;
  }
}

TEST(RunPlanTest, RanksShareGradientsWhereTheyAreTold) {
  const auto held = [](const std::string& what, std::vector<std::string> settings) {
    settings.insert(settings.end(), {"learner.ranks=4", "batch.updates=1", "batch.passes=1"});
    return BytesOf(what, LearnerMemory(Config(settings), Facts(10 * kMillion)));
  };
  const std::string shards = "model.memory=shard_gradients";
  EXPECT_EQ(held("gradients", {}), 40 * kMillion);
  EXPECT_EQ(held("gradients", {shards}), 10 * kMillion + (256U << 20)) << "and four buckets";
  EXPECT_EQ(held("summed gradient, beyond activations", {shards}), 0U);
  EXPECT_EQ(held("copy to undo a step", {}), 0U);
  EXPECT_EQ(held("copy to undo a step", {shards}), 40 * kMillion);
  EXPECT_EQ(held("gradients in host memory", {}), 0U);
  EXPECT_EQ(held("gradients in host memory", {shards}), 40 * kMillion);
}

// 40 MB of pinned memory are 64 MiB.
TEST(RunPlanTest, OffloadedWeightsAreOnTheHostAndSoAreTheNextOnes) {
  const auto held = [](const std::string& what, std::vector<std::string> settings) {
    settings.insert(settings.end(), {"learner.ranks=4", "model.device=cuda", "batch.updates=1",
                                     "method.kl_weight=0.01"});
    return BytesOf(what, LearnerMemory(Config(settings), Facts(10 * kMillion)));
  };
  const std::string shards = "model.memory=offload_average + shard_gradients";
  const std::string offloads = "model.memory=recompute + offload_average + offload_weights";
  const std::string both = offloads + " + shard_gradients";
  for (const char* what : {"trained weights", "reference policy"}) {
    EXPECT_EQ(held(what, {}), 40 * kMillion);
    EXPECT_EQ(held(what, {offloads}), 64U << 20);
  }
  EXPECT_EQ(held("next weights", {shards}), 0U);
  EXPECT_EQ(held("next weights", {offloads}), 0U);
  EXPECT_EQ(held("next weights", {both}), 10 * kMillion) << "four ranks have them once";
  EXPECT_EQ(held("copy to undo a step", {both}), 0U);
  EXPECT_EQ(held("copy to undo a step", {both, "batch.passes=2"}), (40 + 20 + 40) * kMillion);
}

TEST(RunPlanTest, OfALoraWhatIsFrozenIsOnTheHostAndNothingElse) {
  const auto items = [](const std::string& memory) {
    return LearnerMemory(
        Config({"model.trained=lora", "model.device=cuda", "model.memory=" + memory}),
        Facts(10 * kMillion));
  };
  const auto before = items("recompute");
  const auto after = items("recompute + offload_weights");
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < after.size(); ++i) {
    if (after[i].what == "weights of two blocks") continue;
    if (after[i].what == "published snapshots") {
      EXPECT_EQ(before[i].bytes - after[i].bytes, 40 * kMillion) << "the base is not held again";
      continue;
    }
    EXPECT_EQ(after[i].bytes, before[i].bytes) << after[i].what;
    EXPECT_EQ(after[i].on_host, before[i].on_host || after[i].what == "frozen weights")
        << after[i].what;
  }
}

TEST(RunPlanTest, AWorkerWithOffloadedWeightsHoldsTwoBlocksOfThem) {
  run::ModelFacts facts = Facts(kMillion);
  facts.architecture = Sd35();
  facts.transformer_parameters = 2500 * kMillion;
  for (const char* trained : {"model.trained=lora", "model.trained=full"}) {
    const auto with = [&](const char* memory) {
      return WorkerMemory(
          Config({trained, "model.device=cuda", "model.compute_dtype=bf16", memory}), facts);
    };
    const auto before = with("model.memory=recompute");
    const auto after = with("model.memory=recompute + offload_weights");
    const bool lora = std::string(trained) == "model.trained=lora";
    EXPECT_EQ(PeakOf(after) - BytesOf("weights of two blocks", after),
              PeakOf(before) - (lora ? BytesOf("frozen weights", before) : 0))
        << "what is passed on of the base is not held again";
    EXPECT_GT(DevicePeakOf(before) - DevicePeakOf(after), 1000 * kMillion) << trained;
  }
}

TEST(RunPlanTest, ChunksOfTheBaseAreHeldWhereNeitherMemoryNorFilesHaveThem) {
  run::ModelFacts facts = Facts(kMillion);
  facts.architecture = Sd35();
  facts.transformer_parameters = 0;
  for (const auto& [name, shape] : facts.architecture->shapes()) {
    facts.transformer_parameters +=
        std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
  }
  const auto held = [&](const std::string& setting, io::DType stored) {
    for (const auto& [name, shape] : facts.architecture->shapes()) {
      facts.stored_types[name] = stored;
    }
    const v1::RunConfig run =
        Config({"model.trained=lora", "model.device=cuda", "model.compute_dtype=bf16",
                "services.snapshots_kept=1", setting});
    return BytesOf("published snapshots", LearnerMemory(run, facts)) - 4 * kMillion;
  };
  const std::string plain = "model.memory=fast";
  EXPECT_GE(held(plain, io::DType::kF16), 2 * facts.transformer_parameters);
  const uint64_t positions = facts.architecture->shapes().at("pos_embed.pos_embed").at(1) * 1536;
  EXPECT_LT(held(plain, io::DType::kBF16), 4 * positions + facts.transformer_parameters / 10);
  EXPECT_GT(held("model.memory=int8", io::DType::kBF16), facts.transformer_parameters / 2);
  EXPECT_EQ(held("model.device=cpu", io::DType::kF16), 0u);
}

TEST(RunPlanTest, TextEncodersAreGoneBeforeTrainingTakesMore) {
  run::ModelFacts facts = Facts(kMillion);
  const v1::RunConfig run = Config({"model.trained=lora"});
  const uint64_t small = PeakOf(LearnerMemory(run, facts));
  facts.text_encoder_bytes = 30 * kMillion;  // Less than training takes.
  EXPECT_EQ(PeakOf(LearnerMemory(run, facts)), small);
  facts.text_encoder_bytes = 5000 * kMillion;
  EXPECT_EQ(PeakOf(LearnerMemory(run, facts)), 5000 * kMillion + (4 + 40 + 4) * kMillion)
      << "with weights and their average";
}

// 2.47 billion parameters, an adapter of 19 million, a decoder of 50 million, three encoders.
TEST(RunPlanTest, AnSd35AdapterRunTakesWhatItTakes) {
  const run::ModelFacts facts{.architecture = Sd35(),
                              .transformer_parameters = 2470 * kMillion,
                              .trained_parameters = 19 * kMillion,
                              .text_encoder_bytes = 12'000 * kMillion,
                              .decoder_parameters = 50 * kMillion,
                              .schedule = {.shift = 3},
                              .guidance = 4.5,
                              .latent_shape = {16, 64, 64},
                              .prompt_tokens = 205,
                              .conditioning_bytes = 4 * (205 * 4096 + 2048)};
  const std::vector<std::string> chosen = {"recipe=sd35m-ocr-op", "model.compute_dtype=bf16",
                                           "sampling.rows_per_forward=8", "model.device=cuda"};
  const v1::RunConfig run = config::LoadRunConfig({}, chosen, {}).value().config;
  EXPECT_LT(PeakOf(WorkerMemory(run, facts)), uint64_t{12} << 30) << "in use, and as it came";
  v1::RunConfig at_once = run;
  at_once.mutable_sampling()->set_rows_per_forward(0);
  const double rows = 2. * run.services().groups_in_flight() * run.batch().group_size();
  const auto more =
      static_cast<double>(PeakOf(WorkerMemory(at_once, facts)) - PeakOf(WorkerMemory(run, facts)));
  const auto sampling = [&](double of_rows) {
    return static_cast<double>(facts.architecture->SamplingBytes(
        {.compute = at::kBFloat16}, {.rows = static_cast<int64_t>(of_rows),
                                     .on_cpu = false,
                                     .latent_shape = facts.latent_shape,
                                     .prompt_tokens = facts.prompt_tokens}));
  };
  EXPECT_NEAR(more / (sampling(rows) - sampling(8)), 1, 1e-6) << "guided: two rows an image";
  EXPECT_GT(PeakOf(WorkerMemory(run, facts)), uint64_t{9} << 30);
  // 512 entries of 3.4 MB of conditioning and a few latents are most of it.
  EXPECT_LT(DiskBytesNeeded(run, facts), uint64_t{9} << 30);
  const uint64_t conditioning = facts.conditioning_bytes;
  EXPECT_GT(DiskBytesNeeded(run, facts), 2 * run.replay().capacity() * conditioning);
  run::ModelFacts without = facts;
  without.conditioning_bytes = 0;
  EXPECT_EQ(DiskBytesNeeded(run, facts) - DiskBytesNeeded(run, without),
            2 * run.replay().capacity() * conditioning)
      << "each entry's once";
}

// As the rehearsal at real sizes sees them: 64 pictures of 512 pixels and their sheet.
TEST(RunPlanTest, PicturesOfEveryEvaluationAreCountedOnTheDisk) {
  run::ModelFacts facts = Facts(kMillion);
  facts.factors = {.time = 1, .space = 8};
  facts.latent_shape = facts.evaluated_shape = {16, 64, 64};
  const std::vector<std::string> settings = {"run.steps=300", "eval.every=10", "eval.images=2048",
                                             "checkpoint.best="};
  const v1::RunConfig run = Config(settings);
  const double each = static_cast<double>(EvaluationDiskBytes(run, facts)) / 31;
  EXPECT_GT(each, 64 * 127'302 + 3.3e6) << "64 of the 2048 are shown; noise is the largest";
  EXPECT_LT(each, 16e6);
  v1::RunConfig none = run;
  none.mutable_eval()->set_every(0);
  EXPECT_EQ(DiskBytesNeeded(run, facts) - DiskBytesNeeded(none, facts),
            EvaluationDiskBytes(run, facts));
  EXPECT_THAT(MemoryText(run, facts), HasSubstr(" for pictures of evaluations\n"));
}

// Promise: `validate` knows the room of prompts to encode. Those that prompts.cache has do not
// count, and the disk that it is on is looked at, as is that of checkpoint.copy_to.
TEST(RunPlanTest, PromptsToEncodeAreCountedOnTheDisk) {
  const testing::ScopedDirectory scratch;
  const std::string prompts = scratch.path() / "prompts.txt", cache = scratch.path() / "cache";
  std::ofstream(prompts) << "a dog\na cat\n";
  run::ModelFacts facts = Facts(kMillion);
  facts.stored_prompt_bytes = 1000;
  v1::RunConfig run = Config({"prompts.train=" + prompts, "prompts.eval=" + prompts});
  const uint64_t without = DiskBytesNeeded(run, facts);
  run.mutable_prompts()->set_cache(cache);
  EXPECT_EQ(DiskBytesNeeded(run, facts) - without, 3000u) << "two prompts, and the negative one";
  EXPECT_THAT(MemoryText(run, facts), HasSubstr("for prompts to encode (" + cache + ")\n"));
  const std::string name = Sha256Hex("a dog"), folder = cache + "/identity/" + name.substr(0, 2);
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/" + name + ".safetensors") << "x";
  EXPECT_EQ(EncodedPromptBytes(run, facts), 2000u);
}

// Promise: `validate` knows the room of prompts to encode.
TEST(RunPlanTest, EachDiskIsComparedWithItsOwnShare) {
  const testing::ScopedDirectory scratch;
  const std::string prompts = scratch.path() / "prompts.txt";
  std::ofstream(prompts) << "a dog\n";
  run::ModelFacts facts = Facts(100);
  facts.stored_prompt_bytes = 1000;
  const std::vector<std::string> settings = {
      "prompts.train=" + prompts, "prompts.eval=" + prompts,
      "checkpoint.best=", "run.directory=" + scratch.path().string()};
  v1::RunConfig run = Config(settings);
  EXPECT_TRUE(CheckDisks(run, facts).empty());
  run.mutable_prompts()->set_cache("/proc/none");  // No room there, and much elsewhere.
  const auto cache = CheckDisks(run, facts);
  ASSERT_EQ(cache.size(), 1u);
  EXPECT_EQ(cache[0].key, "prompts.cache");
  EXPECT_EQ(cache[0].severity, config::Severity::kError);
  EXPECT_EQ(cache[0].code, absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(cache[0].message, HasSubstr("/proc"));
  run.mutable_prompts()->clear_cache();
  run.mutable_checkpoint()->set_copy_to("/proc");
  ASSERT_EQ(CheckDisks(run, facts).size(), 1u);
  EXPECT_EQ(CheckDisks(run, facts)[0].key, "checkpoint.copy_to");
  run.mutable_checkpoint()->set_copy_to(scratch.path() / "copies");
  EXPECT_EQ(DiskSharesOf(run, facts).back().bytes,
            (run.checkpoint().keep() + 1) * DiskSharesOf(run, facts).back().least);
  facts.trained_parameters = uint64_t{1} << 50;
  ASSERT_EQ(CheckDisks(run, facts).size(), 1u) << "two places, one file system";
  EXPECT_EQ(CheckDisks(run, facts)[0].key, "run.directory");
}

// Promise: `validate` knows the memory of decoding. Its figure for the autoencoders of SD3.5,
// FLUX.1, FLUX.2, Wan2.1, Qwen-Image, LTX-Video and HunyuanVideo on a worker's GPU, beside their
// weights, is within 5 % of the peak of the rehearsed decoder, for pictures and clips, and for more
// pictures than are decoded at once.
TEST(RunPlanTest, AWorkerHoldsWhatItsDecoderMakesOfAllGroupsInFlight) {
  run::ModelFacts facts = Facts(kMillion);
  facts.latent_shape = {4, 16, 16};
  const std::vector<std::string> settings = {"model.device=cuda", "batch.group_size=2",
                                             "services.groups_in_flight=3"};
  const uint64_t without = DevicePeakOf(WorkerMemory(Config(settings), facts));
  const std::string golden = OXBOW_SOURCE_DIR "/tests/golden/decoders/kl_decoder_sd1/";
  facts.decoder = model::ReadDecoder(ReadFile(golden + "config.json").value(),
                                     io::ReadGraphFile(golden + "graph.json.gz").value())
                      .value();
  const uint64_t made = facts.decoder->DecodingBytes(facts.latent_shape, 6, /*on_cpu=*/false);
  constexpr uint64_t kPixels = 32 * 32, kBytesOfPictures = 6 * kPixels * 3;
  EXPECT_EQ(made, 6 * kPixels * (8 + 8 + 4) * sizeof(float) + kBytesOfPictures)
      << "what the block that narrows 8 channels to 4 has, reads and writes";
  EXPECT_EQ(DevicePeakOf(WorkerMemory(Config(settings), facts)), without + made);
  EXPECT_EQ(facts.decoder->DecodingBytes(facts.latent_shape, 6, /*on_cpu=*/true),
            kPixels * (8 + 8 + 4) * sizeof(float) + kBytesOfPictures)
      << "one picture at a time";
}

// Promise: `validate` knows the memory of a GPU. At the sizes of fourteen published networks, with
// adapters, all weights, guidance and recomputation, what it says of a rank's GPU is within 15 % of
// the peak of the dry rehearsal (40 % for a LoRA whose base is in host memory: nearly all is
// activations). Host memory is not counted there.
TEST(RunPlanTest, WhatIsOnAGpuIsApartFromWhatIsOnTheHost) {
  const v1::RunConfig run = Config({"model.device=cuda", "method.kl_weight=0.01"});
  EXPECT_EQ(DevicePeakOf(LearnerMemory(run, Facts(10 * kMillion))), 40 * kMillion * 6)
      << "weights, reference, gradients, two moments, average";
}

// As `oxbow train` starts them: each shard is a process with a limit for offers of its own.
TEST(RunPlanTest, ProcessesAndTheirLimitsCountEachReplayBuffer) {
  const v1::RunConfig one = Config({"replay.fraction=0.25", "services.replay_shards=1"});
  const v1::RunConfig three = Config({"replay.fraction=0.25", "services.replay_shards=3"});
  const v1::RunConfig none = Config({"replay.fraction=0"});
  EXPECT_EQ(ProcessesOf(three), ProcessesOf(one) + 2);
  EXPECT_EQ(ProcessesOf(none) + 1, ProcessesOf(one));
  constexpr uint64_t kEach = uint64_t{8} << 30;
  const uint64_t more = MemoryLimitsOf(three, ProcessesOf(three) * kEach) -
                        MemoryLimitsOf(one, ProcessesOf(one) * kEach);
  EXPECT_GE(more, 2 * (LimitOf(kGrpcShare, kEach) + LimitOf(kOffersShare, kEach)));
}

TEST(RunPlanTest, WhatARankDoesNotHoldHasNoLine) {
  const std::string text = MemoryText(Config(), Facts(kMillion));
  EXPECT_THAT(text, Not(HasSubstr(" 0 B")));
  EXPECT_THAT(text, HasSubstr("  trained weights                        3.8 MiB\n"));
  EXPECT_THAT(text, Not(HasSubstr("weights of two blocks")));
}

TEST(RunPlanTest, OfAFrozenBaseInSixteenBitsSomeStaysFloat32) {
  run::ModelFacts facts = Facts(kMillion);
  facts.architecture = Sd35();
  facts.transformer_parameters = 3000 * kMillion;
  facts.latent_shape = {16, 64, 64};
  const v1::RunConfig run = Config({"model.trained=lora", "model.compute_dtype=bf16"});
  const uint64_t positions = facts.architecture->shapes().at("pos_embed.pos_embed").at(1) * 1536;
  EXPECT_GE(BytesOf("frozen weights", LearnerMemory(run, facts)),
            2 * facts.transformer_parameters + 2 * positions);
}

// Its workers take what those of a run in that dtype take, and pass on what they were sent.
TEST(RunPlanTest, WorkersOfAnotherDtypeTakeItsMemory) {
  run::ModelFacts facts = Facts(kMillion);
  facts.architecture = Sd35();
  facts.transformer_parameters = 3000 * kMillion;
  facts.latent_shape = {16, 64, 64};
  for (const char* device : {"model.device=cuda", "model.device=cpu"}) {
    const auto run = [&](const char* trained, const char* sampled) {
      return Config({"method.name=v_grpo", "model.trained=lora", device,
                     absl::StrCat("model.compute_dtype=", trained),
                     absl::StrCat("model.rollout_dtype=", sampled)});
    };
    const v1::RunConfig exact = run("f32", "as_trained"), mixed = run("f32", "bf16");
    const auto rough = WorkerMemory(run("bf16", "as_trained"), facts);
    for (const char* what : {"frozen weights", "sampling, about"}) {
      EXPECT_EQ(BytesOf(what, WorkerMemory(mixed, facts)), BytesOf(what, rough)) << what;
      EXPECT_LE(BytesOf(what, rough), BytesOf(what, WorkerMemory(exact, facts))) << what;
    }
    EXPECT_LT(PeakOf(rough), PeakOf(WorkerMemory(exact, facts)));
    EXPECT_GE(BytesOf("snapshots", WorkerMemory(mixed, facts)), 4 * facts.transformer_parameters);
    EXPECT_EQ(DevicePeakOf(LearnerMemory(mixed, facts)), DevicePeakOf(LearnerMemory(exact, facts)));
  }
}

TEST(RunPlanTest, ActivationsShrinkWithThePassAndWithCheckpoints) {
  run::ModelFacts facts = Facts(kMillion);
  facts.prompt_tokens = 205;
  facts.architecture = Sd35();
  facts.latent_shape = {16, 64, 64};
  const auto bytes = [&](const std::vector<std::string>& overrides) {
    return BytesOf("activations, about", LearnerMemory(Config(overrides), facts));
  };
  const uint64_t whole = bytes({});
  EXPECT_NEAR(static_cast<double>(bytes({"batch.rows_per_pass=40"})) / whole, 0.25, 1e-3);
  EXPECT_LT(bytes({"model.memory=recompute"}), whole / 8);
  EXPECT_LT(bytes({"model.device=cuda", "model.compute_dtype=bf16"}), whole);
  facts.guidance = 4.5;
  EXPECT_NEAR(static_cast<double>(bytes({})) / whole, 2, 1e-2);
}

}  // namespace
}  // namespace oxbow::cli
