// Sizes from headers, and what a damaged or unsupported directory is told.
#include "cli/plan/model_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/exit_code.h"
#include "cli/plan/check_files.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
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

TEST_F(ModelFactsTest, ATrajectoryThatFitsIntoNoEntryOfTheBufferIsRefusedInOneLine) {
  config_.mutable_replay()->set_fraction(0.25);
  config_.mutable_sampling()->set_storage(v1::STORAGE_D_TYPE_F32);
  config_.mutable_batch()->set_groups(3);
  const ModelFacts facts = ReadModelFacts(config_).value();
  const uint64_t latent = 160 * 4;
  const uint64_t conditioning = facts.conditioning_bytes;
  EXPECT_GT(conditioning, static_cast<uint64_t>(facts.prompt_tokens) * 4);
  const auto limit = static_cast<uint32_t>(((128ull << 20) - conditioning) / latent - 1);
  const auto says = [&](uint32_t steps) {
    config_.mutable_sampling()->set_sde_count(steps);
    std::string text;
    for (const config::Problem& problem : CheckFiles(config_)) {
      if (problem.key == "sampling.sde_count") text += problem.message;
    }
    return text;
  };
  EXPECT_EQ(says(limit), "");
  EXPECT_THAT(says(limit + 1), HasSubstr("sampling.storage, or set replay.fraction to 0: " +
                                         std::to_string((limit + 2) * latent + conditioning) +
                                         " bytes with its conditioning, limit 134217728"));
  config_.mutable_batch()->set_groups(100000);
  EXPECT_EQ(says(limit), "") << "a step offers in as many calls as it needs";
  config_.mutable_replay()->set_fraction(0);
  EXPECT_EQ(says(limit + 1), "") << "nothing is offered";
}

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
  EXPECT_GT(facts->shift, 0);
}

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

TEST_F(ModelFactsTest, WithAnAutoencoderSizesAreInPixelsAndItsDecoderIsCounted) {
  std::ofstream(model_ / "model_index.json")
      << R"({"_class_name": "StableDiffusion3Pipeline", "vae": ["diffusers", "AutoencoderKL"],
             "transformer": ["diffusers", "SD3Transformer2DModel"],
             "text_encoder": ["transformers", "CLIPTextModelWithProjection"],
             "tokenizer": ["transformers", "CLIPTokenizer"],
             "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]})";
  std::filesystem::create_directory(model_ / "vae");
  std::ofstream(model_ / "vae" / "config.json") << R"({"block_out_channels": [4, 8, 8]})";
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

TEST(LoraParametersTest, CountBothMatricesOfTargetedLinearLayers) {
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
  EXPECT_EQ(LoraParameters(tensors, lora).value(), 2u * (6 + 4) + 2u * (4 + 6));
  lora.add_targets("patches");  // A convolution.
  EXPECT_EQ(LoraParameters(tensors, lora).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace oxbow::cli
