// SPDX-License-Identifier: Apache-2.0
// Training models that are more than a transformer: an autoencoder, guidance, mixed precision.
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/safetensors.h"
#include "nlohmann/json.hpp"
#include "tests/integration/drawn_parts.h"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Gt;
using ::testing::Lt;
using ::testing::SizeIs;

// One level, so that a latent is a pixel.
constexpr char kAutoencoder[] = OXBOW_SOURCE_DIR "/tests/golden/graphs/kl_grey";

// A decoder that divides an image by its RMS. Two channels hold x and -x: their group norm is x
// over its RMS, and silu(a) - silu(-a) = a.
void FillAsRms(const std::string& name, size_t, std::vector<float>& values) {
  if (name == "decoder.conv_norm_out.weight") values = {1, 1};
  if (name == "decoder.conv_in.weight" || name == "decoder.conv_out.weight") {
    values[4] = 1;    // The centre of a 3 x 3 kernel.
    values[13] = -1;  // The centre of the other channel's.
  }
}

class PipelineModelTest : public ::testing::Test {
 protected:
  PipelineModelTest() {
    fs::copy(OXBOW_SOURCE_DIR "/models/digits", model_, fs::copy_options::recursive);
    AddAutoencoder(model_, kAutoencoder, FillAsRms);
  }
  std::string ModelPath() const { return "model.path=" + model_.string(); }

  ScopedDirectory scratch_;
  const fs::path model_ = scratch_.path() / "model";
};

TEST_F(PipelineModelTest, WorkersDecodeWhatTheLearnerSendsThem) {
  TrainingRun run({ModelPath(), "run.steps=3", "eval.every=3"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("train/onpolicy_ratio_err"), AllOf(SizeIs(3), Each(0.0)));
  // Images that are not decoded, or decoded wrongly, show no digits.
  EXPECT_THAT(run.Series("train/reward_mean"), Each(Gt(0.3)));
  EXPECT_GT(run.metrics().back()["eval/reward_mean"], 0.3);
}

// Promise: The on-policy ratio is exactly 1.
TEST_F(PipelineModelTest, GuidanceCostsTwoPassesAndRatiosStayExact) {
  TrainingRun run({ModelPath(), "run.steps=3", "sampling.guidance=1.5", "replay.fraction=0",
                   "batch.updates=1", "batch.rows_per_pass=10"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const std::vector<double> samples = run.Series("train/samples");
  const std::vector<double> sampled = run.Series("rollout/rows_forward");
  ASSERT_THAT(sampled, SizeIs(3));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(sampled[i], 2 * 10 * samples[i]);
  EXPECT_THAT(run.Series("train/onpolicy_ratio_err"), AllOf(SizeIs(3), Each(0.0)));
}

// Promise: The on-policy ratio is exactly 1.
TEST_F(PipelineModelTest, AnAdapterTrainsInShortProductsWithRecomputedBlocks) {
  TrainingRun run({ModelPath(), "run.steps=3", "model.trained=lora", "model.lora.rank=4",
                   "model.compute_dtype=bf16", "model.memory=recompute"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("train/onpolicy_ratio_err"), AllOf(SizeIs(3), Each(0.0)));
  EXPECT_THAT(run.Series("train/grad_norm"), Each(Gt(0.0)));
}

// The first step's pictures have the bits of a run in bfloat16; its update is of float32.
TEST_F(PipelineModelTest, WorkersSampleInADtypeOfTheirOwn) {
  const auto first = [&](const char* trained, const char* sampled) {
    TrainingRun run({ModelPath(), "run.steps=1", "eval.every=0", "model.trained=lora",
                     "model.lora.rank=4", absl::StrCat("model.compute_dtype=", trained),
                     absl::StrCat("model.rollout_dtype=", sampled)},
                    {}, "digits-v-grpo");
    EXPECT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
    return run.metrics().back();
  };
  auto exact = first("f32", "as_trained"), rough = first("bf16", "as_trained");
  auto mixed = first("f32", "bf16");
  constexpr char kPictures[] = "train/group_distance_mean", kUpdate[] = "train/grad_norm";
  ASSERT_TRUE(mixed[kPictures].is_number() && mixed[kUpdate].is_number());
  EXPECT_EQ(mixed[kPictures], rough[kPictures]);
  EXPECT_NE(mixed[kPictures], exact[kPictures]);
  EXPECT_NE(mixed[kUpdate], rough[kUpdate]);
}

// Ratios are 1 to the bit only if workers have the very weights of the learner.
// Promise: Workers sample with the learner's int8 weights.
TEST_F(PipelineModelTest, AnAdapterTrainsOnInt8WeightsThatWorkersGetAsTheyAre) {
  for (const char* compute : {"f32", "bf16"}) {
    TrainingRun run({ModelPath(), "run.steps=3", "model.trained=lora", "model.lora.rank=4",
                     "model.memory=int8", absl::StrCat("model.compute_dtype=", compute)});
    ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
    EXPECT_THAT(run.Series("train/onpolicy_ratio_err"), AllOf(SizeIs(3), Each(0.0))) << compute;
    EXPECT_THAT(run.Series("train/grad_norm"), Each(Gt(0.0)));
    EXPECT_THAT(run.Series("train/reward_mean"), Each(Gt(0.3)));
  }
}

// Merged weights are rounded differently: ratios are nearly 1.
TEST_F(PipelineModelTest, WorkersMaySampleWithTheAdapterInTheWeights) {
  TrainingRun run({ModelPath(), "run.steps=3", "model.trained=lora", "model.lora.rank=4",
                   "model.lora.merge_for_rollouts=true", "optimizer.learning_rate=1e-3"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const std::vector<double> errors = run.Series("train/onpolicy_ratio_err");
  ASSERT_THAT(errors, SizeIs(3));
  EXPECT_THAT(errors, Each(Lt(1e-3)));
  EXPECT_GT(errors.back(), 0) << "the adapter was not merged";
}

// Three text encoders, guidance, an adapter and an autoencoder of RGB images; the trained model
// then samples images.
TEST(PipelineTest, TheWholeOfSd3TrainsAnAdapter) {
  const ScopedDirectory scratch;
  const fs::path model = scratch.path() / "model";
  const std::string source = OXBOW_SOURCE_DIR;
  fs::copy(source + "/tests/golden/text/pipeline", model, fs::copy_options::recursive);
  RandomStream random({.seed = 5});
  AddAutoencoder(model, source + "/tests/golden/decoders/kl_decoder_flux",
                 [&](const std::string&, size_t, std::vector<float>& values) {
                   random.FillNormal(std::span(values));
                 });
  TrainingRun run({"model.path=" + model.string(),
                   "model.trained=lora",
                   "model.lora.rank=2",
                   "model.lora.targets=[attn.to_q, attn.to_v, ff.net.2]",
                   "prompts.train=" + source + "/configs/prompts/plates_train.txt",
                   "prompts.eval=" + source + "/configs/prompts/plates_eval.txt",
                   "prompts.cache=" + (scratch.path() / "prompts").string(),
                   "prompts.t5_length=20",
                   "sampling.height=16",
                   "sampling.width=16",
                   "sampling.guidance=4.5",
                   "sampling.negative_prompt=grey dust",
                   "reward.terms=[{name: colour_entropy, weight: 1}]",
                   "reward.observed=[]",
                   "method.zero_variance=unmasked",
                   "method.kl_weight=1e-3",
                   "run.steps=2",
                   "batch.groups=2",
                   "eval.every=2",
                   "checkpoint.every=2"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("train/onpolicy_ratio_err"), AllOf(SizeIs(2), Each(0.0)));
  EXPECT_TRUE(fs::exists(run.directory() / "weights" / "pytorch_lora_weights.safetensors"));
  const fs::path sheet = scratch.path() / "sheet.png";
  const Outcome drawn = RunOxbow({"sample", "--run", run.directory().string(), "--prompt",
                                  "a red square", "--count", "2", "--out", sheet.string()});
  EXPECT_EQ(drawn.exit_code, 0) << drawn.message;
  EXPECT_GT(fs::file_size(sheet), 100u);
}

// As diffusers saves it today, with the graph of its transformer beside it.
fs::path TinyFlux(const fs::path& model) {
  const std::string goldens = OXBOW_SOURCE_DIR "/tests/golden/text/";
  fs::copy(goldens + "pipeline_flux", model, fs::copy_options::recursive);
  fs::copy(goldens + "tokenizer_json/tokenizer", model / "tokenizer");
  fs::copy(goldens + "tokenizer_json/tokenizer_3", model / "tokenizer_2");
  return model;
}

// The same with the scale of guidance as an input of the network, as FLUX.1-dev has it.
fs::path TinyGuidedFlux(const fs::path& model) {
  TinyFlux(model);
  const fs::path weights = model / "transformer" / "diffusion_pytorch_model.safetensors";
  io::Safetensors tensors = *io::ReadSafetensors(weights);
  RandomStream random({.seed = 6});
  const std::string embedder = "time_text_embed.guidance_embedder.linear_";
  for (const auto& [name, shape] : std::map<std::string, std::vector<int64_t>>{
           {"1.weight", {32, 256}}, {"1.bias", {32}}, {"2.weight", {32, 32}}, {"2.bias", {32}}}) {
    std::vector<float> values(static_cast<size_t>(shape[0] * (shape.size() > 1 ? shape[1] : 1)));
    random.FillNormal(std::span(values));
    for (float& value : values) value *= 0.1f;
    tensors.tensors[embedder + name] = {
        .dtype = io::DType::kF32,
        .shape = shape,
        .data = std::string(reinterpret_cast<const char*>(values.data()), 4 * values.size())};
  }
  EXPECT_TRUE(io::WriteSafetensors(weights, tensors).ok());
  for (const char* file : {"config.json", "graph.json.gz"}) {
    fs::copy_file(fs::path(OXBOW_SOURCE_DIR "/tests/golden/graphs/flux_guided") / file,
                  model / "transformer" / file, fs::copy_options::overwrite_existing);
  }
  return model;
}

constexpr size_t kFluxModules = 5;
constexpr size_t kWanModules = 8;
constexpr size_t kLtxModules = 3;

// Text encoders, an adapter, replay, the decoder of RGB images.
std::vector<std::string> FluxSettings(const fs::path& model) {
  const std::string prompts = OXBOW_SOURCE_DIR "/configs/prompts/";
  return {"model.path=" + model.string(),
          "model.trained=lora",
          "model.lora.rank=2",
          "model.lora.targets=[attn.to_q, attn.to_v, ff.net.2]",
          "prompts.train=" + prompts + "plates_train.txt",
          "prompts.eval=" + prompts + "plates_eval.txt",
          "prompts.t5_length=20",
          "sampling.height=16",
          "sampling.width=32",
          "reward.terms=[{name: brightness, weight: 1}]",
          "reward.observed=[]",
          "replay.fraction=0.5",
          "method.zero_variance=unmasked",
          "run.steps=3",
          "batch.groups=2",
          "eval.every=3",
          "checkpoint.every=3"};
}

// Three steps were trained, each on-policy ratio exactly 1.
void ExpectTrained(TrainingRun& run) {
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("train/onpolicy_ratio_err"), AllOf(SizeIs(3), Each(0.0)));
  EXPECT_THAT(run.Series("train/grad_norm"), AllOf(SizeIs(3), Each(Gt(0.0))));
}

void ExpectReplayed(const TrainingRun& run) {
  const std::vector<double> replayed = run.Series("train/groups_replayed");
  EXPECT_THAT(replayed, ::testing::Contains(Gt(0.0)));
}

// The bytes of the sheet that a finished run draws.
std::string Sheet(const TrainingRun& run, const fs::path& sheet,
                  const std::vector<std::string>& flags = {}) {
  std::vector<std::string> arguments = {
      "sample", "--run", run.directory().string(), "--prompt", "a red square", "--count",
      "2",      "--out", sheet.string(),           "--replace"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const Outcome drawn = RunOxbow(arguments);
  EXPECT_EQ(drawn.exit_code, 0) << drawn.message;
  const auto bytes = ReadFile(sheet);
  return bytes.ok() ? *bytes : "";
}

// Promise: A model that is a directory and a graph trains. FLUX.1 from a directory of diffusers,
// with the exported graph of its transformer, trains, replays, evaluates and samples through all
// services, and its on-policy ratio is 1 on CPUs; also in bf16 with recomputed blocks and a
// negative prompt. So does LTX-Video on guided clips, whose decoder is a graph too.
TEST(PipelineTest, FluxTrainsAnAdapterFromItsExportedGraph) {
  const ScopedDirectory scratch;
  TrainingRun run(FluxSettings(TinyFlux(scratch.path() / "model")));
  ExpectTrained(run);
  EXPECT_GT(Sheet(run, scratch.path() / "sheet.png").size(), 100u);
}

// A worker that was given another scale would draw other paths: ratios would not be 1. The scale
// reaches evaluation and `oxbow sample` as well, which draw with the run's unless another is asked.
// Promise: Guidance that is an input is one scale everywhere. Learner, workers, evaluation and
// `oxbow sample` give the network the same scale: the run's, or else the model's own. The on-policy
// ratio is 1 with it. Another scale has another schedule id; ids of networks without it stay what
// they were. A scale that the network does not take is refused by its key.
TEST(PipelineTest, FluxWithEmbeddedGuidanceTrainsReplaysEvaluatesAndSamples) {
  const ScopedDirectory scratch;
  const fs::path model = TinyGuidedFlux(scratch.path() / "model");
  std::map<double, double> evaluated;
  std::map<double, std::string> sheets;
  for (const double scale : {0.0, 3.5, 7.0}) {  // 0: the model's own, which is 3.5.
    std::vector<std::string> settings = FluxSettings(model);
    settings.push_back(absl::StrCat("sampling.embedded_guidance=", scale));
    TrainingRun run(settings);
    ExpectTrained(run);
    ExpectReplayed(run);
    evaluated[scale] = run.metrics().back()["eval/reward_mean"];
    sheets[scale] = Sheet(run, scratch.path() / "sheet.png");
    if (scale != 0) continue;
    EXPECT_EQ(Sheet(run, scratch.path() / "same.png", {"--embedded-guidance", "3.5"}), sheets[0]);
    EXPECT_NE(Sheet(run, scratch.path() / "other.png", {"--embedded-guidance", "7"}), sheets[0]);
  }
  EXPECT_EQ(evaluated[0], evaluated[3.5]);
  EXPECT_EQ(sheets[0], sheets[3.5]);
  EXPECT_NE(evaluated[0], evaluated[7]);
}

// bf16, recomputed blocks, and guidance against a negative prompt.
void AddHeavyParts(std::vector<std::string>& settings) {
  settings.insert(settings.end(), {"model.compute_dtype=bf16", "model.memory=recompute",
                                   "sampling.guidance=2.5", "sampling.negative_prompt=grey dust"});
}

// The adapter of a finished run under diffusers' names. It was trained: B is 0 at the start.
void ExpectExported(const TrainingRun& run, const fs::path& out, size_t modules) {
  const Outcome outcome = RunOxbow(
      {"export", run.directory().string(), "--format", "diffusers", "--out", out.string()});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.message;
  const auto file = io::ReadSafetensors(out / "pytorch_lora_weights.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  size_t trained = 0;
  for (const auto& [name, tensor] : file->tensors) {
    EXPECT_TRUE(name.starts_with("transformer.")) << name;
    if (!name.ends_with(".lora_B.weight")) continue;
    if (tensor.data != std::string(tensor.data.size(), '\0')) ++trained;
  }
  EXPECT_EQ(file->tensors.size(), 2 * modules);
  EXPECT_EQ(trained, modules);
}

// Promise: A model that is a directory and a graph trains.
TEST(PipelineTest, FluxTrainsInShortProductsGuidedReplayedAndExported) {
  const ScopedDirectory scratch;
  std::vector<std::string> settings = FluxSettings(TinyGuidedFlux(scratch.path() / "model"));
  AddHeavyParts(settings);
  settings.insert(settings.end(),
                  {"sampling.embedded_guidance=3.5", "model.memory=recompute + int8"});
  TrainingRun run(settings);
  ExpectTrained(run);
  ExpectReplayed(run);
  ExpectExported(run, scratch.path() / "export", kFluxModules);
}

// Text encoder, transformer and scheduler as diffusers saved them, with a drawn autoencoder: four
// pixels of a side and two frames per latent.
fs::path TinyWan(const fs::path& model) {
  fs::copy(OXBOW_SOURCE_DIR "/tests/golden/text/pipeline_wan", model, fs::copy_options::recursive);
  AddDrawnAutoencoder(model, fs::path(OXBOW_SOURCE_DIR "/tests/golden/decoders/wan_decoder_late"));
  return model;
}

// Guided videos of five frames: text of two lengths, an adapter, KL, replay, the scorer's frames.
std::vector<std::string> WanSettings(const fs::path& model) {
  std::vector<std::string> settings = FluxSettings(model);
  settings.insert(settings.end(), {"model.lora.targets=[to_q, to_v]", "sampling.frames=5",
                                   "sampling.guidance=4.5", "sampling.dynamics=wan_sde",
                                   "method.kl_weight=0.004", "method.kl_space=transition"});
  return settings;
}

// Text encoder, scheduler and the graphs of transformer and decoder, whose weights are drawn.
fs::path TinyLtx(const fs::path& model) {
  const std::string goldens = OXBOW_SOURCE_DIR "/tests/golden/";
  fs::copy(goldens + "text/pipeline_ltx", model, fs::copy_options::recursive);
  fs::copy(goldens + "text/tokenizer_json/tokenizer_3", model / "tokenizer");
  AddDrawnTransformer(model);
  AddDrawnAutoencoder(model, fs::path(goldens + "decoders/ltx_decoder_tiny"));
  return model;
}

nlohmann::json ReplayJson(const TrainingRun& run, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "replay");
  arguments.insert(arguments.end(), {"--run", run.directory().string(), "--format", "json"});
  const Outcome outcome = RunOxbow(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.message;
  return nlohmann::json::parse(outcome.output, nullptr, /*allow_exceptions=*/false);
}

// The mean of each of `count` float32 latents.
std::vector<double> MeansOf(const io::TensorBytes& latents, size_t count) {
  std::vector<float> numbers(latents.data.size() / sizeof(float));
  std::copy_n(latents.data.data(), latents.data.size(), reinterpret_cast<char*>(numbers.data()));
  const size_t each = numbers.size() / count;
  std::vector<double> means;
  for (auto latent = numbers.begin(); latent != numbers.end(); latent += static_cast<long>(each)) {
    means.push_back(std::accumulate(latent, latent + static_cast<long>(each), 0.0) /
                    static_cast<double>(each));
  }
  return means;
}

// The buffer that a run of videos left is listed, sound, shown, and exported with its frames.
void ExpectEntriesOfVideos(const TrainingRun& run, const fs::path& out) {
  const nlohmann::json list = ReplayJson(run, {"list"}), audit = ReplayJson(run, {"verify"});
  ASSERT_GT(list["rows"].size(), 0u) << list;
  EXPECT_GE(audit["entries"], list["entries"]);
  EXPECT_EQ(audit["sound"], true) << audit;
  const std::string entry = list["rows"][0]["entry"];
  const nlohmann::json shown = ReplayJson(run, {"show", entry});
  const Outcome exported = RunOxbow(
      {"replay", "export", entry, "--run", run.directory().string(), "--out", out.string()});
  ASSERT_EQ(exported.exit_code, 0) << exported.message;
  const std::string stem = (out / ("entry_" + entry)).string();
  ASSERT_TRUE(shown["picture"].is_object()) << shown;
  EXPECT_GT(shown["picture"]["width"], shown["picture"]["height"]) << "three frames in a row";
  const auto arrays = io::ReadSafetensors(stem + ".safetensors");
  ASSERT_TRUE(arrays.ok()) << arrays.status();
  const io::TensorBytes& latents = arrays->tensors.at("latents");
  const size_t count = shown["latents"].size();
  ASSERT_GT(count, 1u);
  ASSERT_EQ(latents.shape, (std::vector<int64_t>{static_cast<int64_t>(count), 4, 3, 4, 8}));
  const std::vector<double> means = MeansOf(latents, count);
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(shown["latents"][i]["finite"], true);
    EXPECT_NEAR(shown["latents"][i]["mean"], means[i], 1e-6);
  }
  EXPECT_GT(fs::file_size(stem + ".png"), 100u);
}

// Promise: A model of videos trains. A small Wan2.1 from a directory of diffusers, with UMT5,
// UniPC's scheduler and its autoencoder, trains an adapter on guided clips of five frames with KL
// and replay through all services. Its on-policy ratio is 1 on CPUs, and `oxbow sample` draws
// animated PNG. Its stored latents are listed, verified and exported with their frames. Latents of
// another shape are not used, though their bytes fit.
TEST(PipelineTest, WanTrainsAnAdapterOnVideosFromItsExportedGraph) {
  const ScopedDirectory scratch;
  TrainingRun run(WanSettings(TinyWan(scratch.path() / "model")));
  ExpectTrained(run);
  ExpectReplayed(run);
  ExpectEntriesOfVideos(run, scratch.path());
  const std::string video = Sheet(run, scratch.path() / "video.png");
  EXPECT_NE(video.find("acTL"), std::string::npos) << "an animated PNG";
}

// Prompts of two lengths in one batch, which the mask tells apart, beside a negative one.
// Promise: A model that is a directory and a graph trains.
TEST(PipelineTest, LtxTrainsAnAdapterOnVideosFromItsExportedGraphs) {
  const ScopedDirectory scratch;
  std::vector<std::string> settings = FluxSettings(TinyLtx(scratch.path() / "model"));
  settings.insert(settings.end(),
                  {"model.lora.targets=[attn1.to_q, attn2.to_k, ff.net.2]", "sampling.frames=3",
                   "sampling.height=8", "sampling.width=16", "sampling.guidance=3"});
  TrainingRun run(settings);
  ExpectTrained(run);
  ExpectReplayed(run);
  ExpectExported(run, scratch.path() / "export", kLtxModules);
  const std::string video = Sheet(run, scratch.path() / "video.png");
  EXPECT_NE(video.find("acTL"), std::string::npos) << "an animated PNG";
}

// Promise: A model of videos trains.
TEST(PipelineTest, WanTrainsInShortProductsGuidedReplayedAndExported) {
  const ScopedDirectory scratch;
  std::vector<std::string> settings = WanSettings(TinyWan(scratch.path() / "model"));
  AddHeavyParts(settings);
  TrainingRun run(settings);
  ExpectTrained(run);
  ExpectReplayed(run);
  ExpectExported(run, scratch.path() / "export", kWanModules);
}

// Without replay a run has no buffer.
// Promise: A run of videos survives what a run of images does. A deterministic run of a small Wan
// whose learner, worker, reward server or, with replay, buffer is killed has the losses and the
// weights of an undisturbed one, bit for bit.
TEST(PipelineTest, ARunOfVideosHasTheSameBitsWhicheverProcessIsKilled) {
  const ScopedDirectory scratch;
  const std::vector<std::string> common = WanSettings(TinyWan(scratch.path() / "model"));
  const auto settings = [&](const std::string& replay) {
    std::vector<std::string> all = common;
    all.insert(all.end(), {"run.deterministic=true", "run.steps=6", "eval.every=0",
                           "checkpoint.every=2", "services.lease_seconds=3", replay});
    return all;
  };
  const auto check = [&](const std::string& replay, const std::vector<std::string>& names) {
    TrainingRun whole(settings(replay));
    ASSERT_EQ(whole.WaitExit().value(), 0) << whole.process().error_output();
    EXPECT_THAT(whole.Series("train/loss"), SizeIs(6));
    for (const std::string& name : names) {
      TrainingRun killed(settings(replay));
      ASSERT_TRUE(killed.WaitForStep(3)) << killed.process().error_output();
      ASSERT_TRUE(killed.KillChild(name, SIGKILL)) << name;
      ASSERT_EQ(killed.WaitExit().value(), 0) << name << killed.process().error_output();
      EXPECT_EQ(killed.Series("train/loss"), whole.Series("train/loss")) << name;
      EXPECT_TRUE(killed.FinalWeights() == whole.FinalWeights()) << name << ": other bytes";
    }
  };
  check("replay.fraction=0", {"learner", "rollout_worker", "reward_server"});
  check("replay.fraction=0.5", {"replay_buffer"});
}

// Promise: Guidance that is an input is one scale everywhere.
TEST(PipelineTest, AScaleThatTheNetworkDoesNotTakeIsRefusedInOneLine) {
  const ScopedDirectory scratch;
  std::vector<std::string> arguments = {"validate", OXBOW_SOURCE_DIR "/configs/digits.yaml"};
  std::vector<std::string> settings = FluxSettings(TinyFlux(scratch.path() / "model"));
  settings.push_back("sampling.embedded_guidance=3.5");
  for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
  const Outcome refused = RunOxbow(arguments);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(
      refused.message,
      ::testing::HasSubstr("sampling.embedded_guidance: must be 0: this "
                           "FluxTransformer2DModel takes no scale of guidance as an input"));
}

}  // namespace
}  // namespace oxbow::testing
