// SPDX-License-Identifier: Apache-2.0
// Sizes from headers, and what a damaged or unsupported directory is told.
#include "run/model_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/exit_code.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::run {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ModelFactsTest : public ::testing::Test {
 protected:
  ModelFactsTest() {
    std::filesystem::copy(OXBOW_SOURCE_DIR "/models/digits", model_,
                          std::filesystem::copy_options::recursive);
    config_.mutable_model()->set_path(model_.string());
    config_.mutable_model()->set_trained(v1::TRAINED_PART_FULL);
    config_.mutable_sampling()->set_height(8);
    config_.mutable_sampling()->set_width(20);
  }

  testing::ScopedDirectory scratch_;
  const std::filesystem::path model_ = scratch_.path() / "model";
  v1::RunConfig config_;
};

TEST_F(ModelFactsTest, SizesAreThoseOfTheWholeFiles) {
  const auto facts = ReadModelFacts(config_);
  ASSERT_TRUE(facts.ok()) << facts.status();
  const auto whole =
      io::ReadSafetensors(model_ / "transformer" / "diffusion_pytorch_model.safetensors");
  ASSERT_TRUE(whole.ok());
  uint64_t elements = 0;
  for (const auto& [name, tensor] : whole->tensors) {
    elements += tensor.data.size() / io::WidthOf(tensor.dtype);
  }
  EXPECT_EQ(facts->transformer_parameters, elements);
  EXPECT_LT(facts->trained_parameters, elements);  // The position table is not trained.
  EXPECT_THAT(facts->latent_shape, ElementsAre(1, 8, 20));
  EXPECT_GT(facts->schedule.shift, 0);
  EXPECT_GT(facts->conditioning_bytes, static_cast<uint64_t>(facts->prompt_tokens) * 4);
}

TEST_F(ModelFactsTest, ASizeThatTheModelCannotDrawIsAUsageError) {
  config_.mutable_sampling()->set_height(6);
  const auto facts = ReadModelFacts(config_);
  EXPECT_EQ(ExitCodeOf(facts.status()), kExitUsage);
  EXPECT_THAT(std::string(facts.status().message()), HasSubstr("sampling.height"));
}

TEST_F(ModelFactsTest, EvaluationHasTheSizeOfSamplingOrItsOwn) {
  EXPECT_THAT(ReadModelFacts(config_)->evaluated_shape, ElementsAre(1, 8, 20));
  config_.mutable_eval()->set_height(16);
  EXPECT_THAT(ReadModelFacts(config_)->evaluated_shape, ElementsAre(1, 16, 20));
  EXPECT_THAT(ReadModelFacts(config_)->latent_shape, ElementsAre(1, 8, 20));
  config_.mutable_eval()->set_width(12);
  EXPECT_THAT(ReadModelFacts(config_)->evaluated_shape, ElementsAre(1, 16, 12));
  config_.mutable_eval()->set_height(6);
  const auto facts = ReadModelFacts(config_);
  EXPECT_EQ(ExitCodeOf(facts.status()), kExitUsage);
  EXPECT_THAT(std::string(facts.status().message()), HasSubstr("eval.height and width must be"));
}

TEST(EvaluatedAtOnceTest, LargerPicturesAreFewerInProportion) {
  EXPECT_EQ(EvaluatedAtOnce({16, 64, 64}, {16, 64, 64}), 64);
  EXPECT_EQ(EvaluatedAtOnce({16, 64, 64}, {16, 32, 32}), 64);
  EXPECT_EQ(EvaluatedAtOnce({16, 64, 64}, {16, 128, 128}), 16);
  EXPECT_EQ(EvaluatedAtOnce({16, 8, 8}, {16, 256, 256}), 1);
}

TEST(PicturesOfLeaseTest, TheyAreAtMostAGroupUnlessOtherRowsWouldChangeTheirBits) {
  v1::RunConfig config;
  config.mutable_batch()->set_group_size(24);
  config.mutable_model()->set_device("cuda:0");
  EXPECT_EQ(PicturesOfLease(config, {16, 64, 64}, {16, 64, 64}), 24);
  EXPECT_EQ(PicturesOfLease(config, {16, 64, 64}, {16, 128, 128}), 16);
  config.mutable_run()->set_deterministic(true);
  EXPECT_EQ(PicturesOfLease(config, {16, 64, 64}, {16, 64, 64}), 64);
  config.mutable_model()->set_device("cpu");
  EXPECT_EQ(PicturesOfLease(config, {16, 64, 64}, {16, 64, 64}), 24);
}

// Promise: A bad config does not start.
TEST_F(ModelFactsTest, TruncatedWeightsAreADataErrorThatNamesTheFile) {
  for (const char* file :
       {"transformer/diffusion_pytorch_model.safetensors", "text_encoder/model.safetensors"}) {
    const auto path = model_ / file;
    const auto size = std::filesystem::file_size(path);
    std::filesystem::resize_file(path, size - 1);
    const auto facts = ReadModelFacts(config_);
    EXPECT_EQ(ExitCodeOf(facts.status()), kExitData);
    EXPECT_THAT(std::string(facts.status().message()), HasSubstr(file));
    std::filesystem::copy_file(std::string(OXBOW_SOURCE_DIR "/models/digits/") + file, path,
                               std::filesystem::copy_options::overwrite_existing);
  }
  EXPECT_TRUE(ReadModelFacts(config_).ok());
}

// The learner would end on it, after everything else has started.
// Promise: Prompts become the tokens of transformers.
TEST_F(ModelFactsTest, AMissingTokenizerIsADataErrorThatNamesTheDirectory) {
  std::filesystem::remove(model_ / "tokenizer" / "vocab.json");
  const auto facts = ReadModelFacts(config_);
  EXPECT_EQ(ExitCodeOf(facts.status()), kExitData);
  EXPECT_THAT(std::string(facts.status().message()), HasSubstr((model_ / "tokenizer").string()));
}

TEST_F(ModelFactsTest, WithAnAutoencoderSizesAreInPixelsAndItsDecoderIsCounted) {
  std::ofstream(model_ / "model_index.json")
      << R"({"_class_name": "StableDiffusion3Pipeline", "vae": ["diffusers", "AutoencoderKL"],
             "transformer": ["diffusers", "SD3Transformer2DModel"],
             "text_encoder": ["transformers", "CLIPTextModelWithProjection"],
             "tokenizer": ["transformers", "CLIPTokenizer"],
             "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]})";
  std::filesystem::create_directory(model_ / "vae");
  const std::string golden = OXBOW_SOURCE_DIR "/tests/golden/decoders/kl_decoder_narrow/";
  std::filesystem::copy(golden + "config.json", model_ / "vae");
  EXPECT_THAT(std::string(ReadModelFacts(config_).status().message()),
              HasSubstr("export_model export AutoencoderKL --config " +
                        (model_ / "vae/config.json").string()));
  std::filesystem::copy(golden + "graph.json.gz", model_ / "vae");
  EXPECT_EQ(ExitCodeOf(ReadModelFacts(config_).status()), kExitData) << "no weights yet";
  io::Safetensors weights;
  for (const auto& [name, size] : {std::pair<std::string, int64_t>{"encoder.conv_in.bias", 5},
                                   {"decoder.conv_in.bias", 7},
                                   {"post_quant_conv.bias", 2}}) {
    weights.tensors[name] = {.dtype = io::DType::kF32,
                             .shape = {size},
                             .data = std::string(static_cast<size_t>(size) * 4, 0)};
  }
  ASSERT_TRUE(
      io::WriteSafetensors(model_ / "vae" / "diffusion_pytorch_model.safetensors", weights).ok());
  config_.mutable_sampling()->set_height(32);
  config_.mutable_sampling()->set_width(80);
  const auto facts = ReadModelFacts(config_);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->decoder_parameters, 9u);
  EXPECT_THAT(facts->latent_shape, ElementsAre(1, 8, 20));
}

TEST(ArchitectureOfTest, WithoutAGraphTheCommandThatMakesItIsSaidInFull) {
  const testing::ScopedDirectory scratch;
  const std::string folder = (scratch.path() / "transformer").string();
  const auto none = ArchitectureOf({.class_name = "FluxTransformer2DModel",
                                    .directory = folder,
                                    .config_json = R"({"num_layers": 7})"});
  EXPECT_THAT(
      std::string(none.status().message()),
      HasSubstr("`pip install -r tools/export_model/requirements.txt && cd tools && python3 -m "
                "export_model export FluxTransformer2DModel --config " +
                folder + "/config.json --out " + folder + "`"));
}

// A tiny FLUX.1 whose transformer is the one of an exported graph beside it.
ModelFacts FluxFacts(const std::string& network, absl::Status& status) {
  const testing::ScopedDirectory scratch;
  const std::string goldens = OXBOW_SOURCE_DIR "/tests/golden/";
  const std::filesystem::path model = scratch.path() / "model";
  const auto all =
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing;
  std::filesystem::copy(goldens + "text/pipeline_flux", model, all);
  std::filesystem::copy(goldens + "text/tokenizer_json/tokenizer", model / "tokenizer");
  std::filesystem::copy(goldens + "text/tokenizer_json/tokenizer_3", model / "tokenizer_2");
  for (const char* file : {"config.json", "graph.json.gz"}) {
    std::filesystem::copy(goldens + "exported/" + network + "/" + file,
                          model / "transformer" / file, all);
  }
  v1::RunConfig config;
  config.mutable_model()->set_path(model.string());
  config.mutable_sampling()->set_height(8);
  config.mutable_sampling()->set_width(16);
  config.mutable_prompts()->set_t5_length(16);
  const auto facts = ReadModelFacts(config);
  status = facts.status();
  return facts.ok() ? *facts : ModelFacts();
}

// Promise: A model that is a directory and a graph trains.
TEST(ExportedModelTest, ADirectoryWithItsGraphIsAModel) {
  absl::Status status;
  const ModelFacts facts = FluxFacts("flux_schnell_tiny", status);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(facts.prompt_tokens, 16);
  EXPECT_THAT(facts.latent_shape, ElementsAre(4, 4, 8)) << "the decoder doubles a side";
}

TEST(ExportedModelTest, AModelWhosePromptsALanguageModelReadsIsAModel) {
  v1::RunConfig config;
  config.mutable_model()->set_path(OXBOW_SOURCE_DIR "/tests/golden/text/pipeline_qwen_image");
  config.mutable_sampling()->set_height(8);
  config.mutable_sampling()->set_width(16);
  config.mutable_prompts()->set_t5_length(64);
  const auto facts = ReadModelFacts(config);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->prompt_tokens, 64);
  EXPECT_EQ(facts->conditioning_bytes, 4u * 64 * (16 + 1)) << "tokens and their mask";
}

TEST(ExportedModelTest, ANetworkMayTakeGuidanceAsAnInput) {
  absl::Status status;
  const ModelFacts facts = FluxFacts("flux_dev_tiny", status);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(facts.architecture->takes_embedded_guidance());
  EXPECT_EQ(facts.architecture->default_guidance(), 3.5);
}

TEST(LoraSizeTest, CountBothMatricesOfTargetedLinearLayers) {
  const std::map<std::string, io::TensorHeader> tensors = {
      {"blocks.0.attn.to_q.weight", {io::DType::kF32, {6, 4}}},
      {"blocks.0.attn.to_q.bias", {io::DType::kF32, {6}}},
      {"blocks.0.attn.xto_q.weight", {io::DType::kF32, {6, 4}}},
      {"blocks.0.ff.weight", {io::DType::kF32, {16, 4}}},
      {"proj.weight", {io::DType::kF32, {4, 6}}},
      {"patches.weight", {io::DType::kF32, {4, 1, 2, 2}}}};
  v1::LoraConfig lora;
  lora.set_rank(2);
  for (const char* target : {"attn.to_q", "proj"}) lora.add_targets(target);
  EXPECT_EQ(LoraSizeOf(tensors, lora)->parameters, 2u * (6 + 4) + 2u * (4 + 6));
  EXPECT_EQ(LoraSizeOf(tensors, lora)->rank_useful, 4u);
  EXPECT_EQ(LoraSizeOf(tensors, lora)->adapted, 2u * 6 * 4);
  lora.add_targets("patches");  // A convolution.
  EXPECT_EQ(LoraSizeOf(tensors, lora).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace oxbow::run
