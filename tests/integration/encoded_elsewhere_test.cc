// SPDX-License-Identifier: Apache-2.0
// Pipelines whose prompts a language model reads, from files to an adapter: networks from their
// exported graphs. HunyuanVideo's prompts come from a cache that tools/encode_prompts wrote.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/safetensors.h"
#include "tests/integration/drawn_parts.h"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const std::string kGoldens = OXBOW_SOURCE_DIR "/tests/golden/text/";
const std::string kDecoders = OXBOW_SOURCE_DIR "/tests/golden/decoders/";

struct Pipeline {
  std::string name;         // Its golden files have it.
  const char* autoencoder;  // Its config.json, or a golden decoder that has it and a graph.
  int tokens = 0;           // A prompt has so many.
  std::vector<std::string> sampling = {};
};

class LanguageModelPipelinesTest : public ::testing::TestWithParam<Pipeline> {
 protected:
  LanguageModelPipelinesTest() {
    const std::string& name = GetParam().name;
    fs::copy(kGoldens + "pipeline_" + name, model_, fs::copy_options::recursive);
    if (const fs::path encoded = kGoldens + "encoded_" + name; fs::exists(encoded)) {
      fs::copy(encoded, cache_, fs::copy_options::recursive);
    }
    if (!fs::exists(model_ / "transformer" / "diffusion_pytorch_model.safetensors")) {
      AddDrawnTransformer(model_);
    }
    const std::string autoencoder = GetParam().autoencoder;
    if (autoencoder.starts_with("{")) {
      AddDrawnAutoencoder(model_, GetParam().autoencoder);
    } else {
      AddDrawnAutoencoder(model_, fs::path(kDecoders + autoencoder));
    }
    adapter_ = nlohmann::json::parse(ReadFile(model_ / "adapter.json").value());
    // Two prompts of one text, one for a fresh group and one for a replayed one.
    std::ofstream(prompts_) << R"({"prompt": "a red cat", "which": 1})"
                            << "\n"
                            << R"({"prompt": "a red cat", "which": 2})"
                            << "\n";
  }

  std::vector<std::string> Settings() const {
    std::vector<std::string> settings = {"model.path=" + model_.string(),
                                         "model.trained=lora",
                                         "model.lora.rank=2",
                                         "model.lora.targets=" + adapter_["targets"].dump(),
                                         "prompts.train=" + prompts_.string(),
                                         "prompts.eval=" + prompts_.string(),
                                         "prompts.cache=" + cache_.string(),
                                         absl::StrCat("prompts.t5_length=", GetParam().tokens),
                                         "sampling.steps=4",
                                         "sampling.sde_count=2",
                                         "sampling.height=8",
                                         "sampling.width=16",
                                         "reward.terms=[{name: brightness, weight: 1}]",
                                         "reward.observed=[]",
                                         "method.zero_variance=unmasked",
                                         "replay.fraction=0.5",
                                         "run.steps=3",
                                         "batch.groups=2",
                                         "batch.group_size=4",
                                         "eval.every=3",
                                         "eval.images=2",
                                         "eval.grid_images=2",
                                         "eval.steps=4",
                                         "checkpoint.every=3"};
    for (const std::string& setting : GetParam().sampling) settings.push_back(setting);
    return settings;
  }

  ScopedDirectory scratch_;
  const fs::path model_ = scratch_.path() / "model", cache_ = scratch_.path() / "cache",
                 prompts_ = scratch_.path() / "prompts.jsonl";
  nlohmann::json adapter_;  // Targets, and the modules that PEFT gives an adapter for them.
};

// Promise: A model whose prompts a language model reads trains. Small Qwen-Image, Z-Image and
// FLUX.2 (dev and klein) encode their prompts, HunyuanVideo takes those that `tools/encode_prompts`
// encoded; they train an adapter, draw, and export it under PEFT's names. Their on-policy ratio is
// 1 on CPUs.
TEST_P(LanguageModelPipelinesTest, TrainsDrawsAndExportsAnAdapterUnderPeftsNames) {
  TrainingRun run(Settings());
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("train/onpolicy_ratio_err"), AllOf(SizeIs(3), Each(0.0)));
  EXPECT_THAT(run.Series("train/grad_norm"), AllOf(SizeIs(3), Each(Gt(0.0))));
  EXPECT_THAT(run.Series("train/groups_replayed"), Contains(Gt(0.0)));
  EXPECT_TRUE(run.metrics().back().contains("eval/reward_mean"));

  const fs::path exported = scratch_.path() / "export";
  const Outcome outcome = RunOxbow(
      {"export", run.directory().string(), "--format", "diffusers", "--out", exported.string()});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.message;
  const auto file = io::ReadSafetensors(exported / "pytorch_lora_weights.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  std::set<std::string> names, expected;
  for (const auto& [name, tensor] : file->tensors) names.insert(name);
  for (const auto& module : adapter_["modules"]) {
    for (const char* matrix : {".lora_A.weight", ".lora_B.weight"}) {
      expected.insert(absl::StrCat("transformer.", module.get<std::string>(), matrix));
    }
  }
  EXPECT_EQ(names, expected);
  const Outcome comfyui = RunOxbow({"export", run.directory().string(), "--format", "comfyui"});
  EXPECT_EQ(comfyui.exit_code, 0) << comfyui.message;

  const fs::path sheet = scratch_.path() / "sheet.png";
  const Outcome drawn = RunOxbow({"sample", "--run", run.directory().string(), "--prompt",
                                  "a red cat", "--count", "2", "--out", sheet.string()});
  EXPECT_EQ(drawn.exit_code, 0) << drawn.message;
  EXPECT_GT(fs::file_size(sheet), 100u);
}

// The refusal of validate for an autoencoder that cannot run is one line.
TEST_P(LanguageModelPipelinesTest, AnAutoencoderWithoutItsGraphOrOfAnotherClassIsRefused) {
  const auto refusal = [&] {
    std::vector<std::string> arguments = {"validate",
                                          OXBOW_SOURCE_DIR "/configs/recipes/digits-op-grpo.yaml"};
    for (const std::string& setting : Settings()) {
      arguments.push_back("--set");
      arguments.push_back(setting);
    }
    const Outcome outcome = RunOxbow(arguments);
    EXPECT_EQ(outcome.exit_code, 4) << outcome.message;
    std::string reasons;  // Other lines are warnings.
    for (const std::string& line :
         std::vector<std::string>(absl::StrSplit(outcome.message, '\n'))) {
      if (absl::StrContains(line, "model.path: ")) reasons += line + "\n";
    }
    EXPECT_EQ(std::count(reasons.begin(), reasons.end(), '\n'), 1) << outcome.message;
    return reasons;
  };
  const std::string class_name =
      nlohmann::json::parse(ReadFile(model_ / "vae" / "config.json").value())["_class_name"];
  if (fs::remove(model_ / "vae" / "graph.json.gz")) {
    EXPECT_THAT(refusal(), HasSubstr("python3 -m export_model export " + class_name));
  }
  auto index = nlohmann::json::parse(ReadFile(model_ / "model_index.json").value());
  index["vae"][1] = "AutoencoderTiny";
  std::ofstream(model_ / "model_index.json") << index.dump();
  EXPECT_THAT(refusal(), AllOf(HasSubstr("AutoencoderTiny"), HasSubstr("vae " + class_name)));
}

// Guidance of Qwen-Image keeps the norm of each token; HunyuanVideo takes its scale as an input.
INSTANTIATE_TEST_SUITE_P(
    Pipelines, LanguageModelPipelinesTest,
    ::testing::Values(
        Pipeline{"qwen_image", "qwen_image_decoder_tiny", 256, {"sampling.guidance=4"}},
        Pipeline{"z_image", "kl_decoder_flux", 64, {"sampling.guidance=3"}},
        Pipeline{"flux2_dev", "flux2_decoder_tiny", 256, {"sampling.embedded_guidance=4"}},
        Pipeline{"flux2_klein", "flux2_decoder_tiny", 80},
        Pipeline{"hunyuan_video",
                 "hunyuan_decoder_tiny",
                 128,
                 {"sampling.frames=21", "sampling.embedded_guidance=5"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace oxbow::testing
