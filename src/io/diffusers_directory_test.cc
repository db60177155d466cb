// SPDX-License-Identifier: Apache-2.0
#include "io/diffusers_directory.h"

#include <fstream>
#include <map>

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/safetensors.h"
#include "nlohmann/json.hpp"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TensorBytes Float(float value) {
  TensorBytes tensor{.dtype = DType::kF32, .shape = {1}};
  tensor.data.assign(reinterpret_cast<const char*>(&value), sizeof value);
  return tensor;
}

fs::path Written(const std::string& name) {
  const fs::path directory = fs::path(::testing::TempDir()) / name;
  fs::remove_all(directory);
  fs::copy(OXBOW_SOURCE_DIR "/models/digits", directory, fs::copy_options::recursive);
  const std::map<std::string, std::map<std::string, TensorBytes>> weights = {
      {"transformer/diffusion_pytorch_model", {{"a", Float(1)}, {"b", Float(2)}}},
      {"text_encoder/model", {{"t", Float(3)}}}};
  for (const auto& [base, tensors] : weights) {
    const absl::Status status =
        WriteSafetensors(directory / (base + ".safetensors"), {.tensors = tensors, .metadata = {}});
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_TRUE(
      WriteFileAtomically(directory / "transformer/config.json", "{\"num_layers\":3}").ok());
  return directory;
}

void Overwrite(const fs::path& path, const std::string& text) {
  ASSERT_TRUE(WriteFileAtomically(path, text).ok());
}

TEST(DiffusersDirectoryTest, ReadsBackWhatWasWritten) {
  const auto components = OpenDiffusersDirectory(Written("whole"));
  ASSERT_TRUE(components.ok()) << components.status();
  EXPECT_EQ(components->at("transformer").class_name, "SD3Transformer2DModel");
  EXPECT_EQ(components->at("transformer").config_json, "{\"num_layers\":3}");
  EXPECT_THAT(components->at("scheduler").config_json, HasSubstr("\"shift\": 1.0"));
  const auto weights = OpenComponentWeights(components->at("transformer"));
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->BytesOf("b"), Float(2).data);
  EXPECT_EQ(OpenComponentWeights(components->at("text_encoder"))->headers().size(), 1u);
}

// model_index.json of the published SD3.5, weights left out.
fs::path StableDiffusion(const std::string& name) {
  const fs::path directory = Written(name);
  for (const char* folder : {"vae", "text_encoder_2", "text_encoder_3"}) {
    fs::create_directories(directory / folder);
    Overwrite(directory / folder / "config.json", "{}");
  }
  Overwrite(directory / "model_index.json", R"({
    "_class_name": "StableDiffusion3Pipeline",
    "_diffusers_version": "0.30.3.dev0",
    "feature_extractor": [null, null],
    "image_encoder": [null, null],
    "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
    "text_encoder": ["transformers", "CLIPTextModelWithProjection"],
    "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"],
    "text_encoder_3": ["transformers", "T5EncoderModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "tokenizer_2": ["transformers", "CLIPTokenizerFast"],
    "tokenizer_3": ["transformers", "T5Tokenizer"],
    "transformer": ["diffusers", "SD3Transformer2DModel"],
    "vae": ["diffusers", "AutoencoderKL"]})");
  return directory;
}

TEST(DiffusersDirectoryTest, OpensAllNineComponentsOfStableDiffusion) {
  const auto components = OpenDiffusersDirectory(StableDiffusion("nine"));
  ASSERT_TRUE(components.ok()) << components.status();
  EXPECT_EQ(components->size(), 9u);
  EXPECT_EQ(components->at("vae").weights_base, "diffusion_pytorch_model");
  EXPECT_EQ(components->at("text_encoder_3").weights_base, "model");
  EXPECT_EQ(components->at("tokenizer_2").class_name, "CLIPTokenizer");
  EXPECT_EQ(components->at("tokenizer_3").class_name, "T5TokenizerFast");
  EXPECT_EQ(OpenComponentWeights(components->at("vae")).status().code(),
            absl::StatusCode::kNotFound);
}

struct OtherModel {
  const char* what;
  const char* index;
  absl::StatusCode code;
  std::vector<const char*> message;
};

TEST(DiffusersDirectoryTest, OtherModelsAreRefusedByNameWithWhatIsSupported) {
  constexpr auto kForeign = absl::StatusCode::kFailedPrecondition;
  const std::vector<OtherModel> others = {
      {"class",
       R"({"transformer":["diffusers","FluxTransformer2DModel"]})",
       kForeign,
       {"FluxTransformer2DModel", "SD3Transformer2DModel"}},
      {"pipeline",
       R"({"_class_name":"SanaPipeline"})",
       kForeign,
       {"SanaPipeline", "StableDiffusion3Pipeline", "FluxPipeline"}},
      {"component", R"({"unet":["diffusers","UNet2DConditionModel"]})", kForeign, {"unet"}},
      {"missing",
       R"({"scheduler":["diffusers","FlowMatchEulerDiscreteScheduler"]})",
       kForeign,
       {"transformer"}},
      {"not a pair", R"({"vae":["diffusers"]})", absl::StatusCode::kDataLoss, {"vae"}},
      {"broken", "{", absl::StatusCode::kDataLoss, {"model_index.json"}}};
  const fs::path directory = Written("unsupported");
  for (const OtherModel& other : others) {
    Overwrite(directory / "model_index.json", other.index);
    const auto status = OpenDiffusersDirectory(directory).status();
    EXPECT_EQ(status.code(), other.code) << other.what << ": " << status;
    for (const char* part : other.message) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part)) << other.what;
    }
  }
}

// PipelineOf knows a pipeline by its transformer: FLUX.2 has two of one class.
TEST(DiffusersDirectoryTest, PipelinesOfOneTransformerHaveOneTextSide) {
  std::map<std::string, std::string> side_of;
  for (const Pipeline& pipeline : PipelineTable()) {
    for (const PipelineComponent& row : pipeline.components) {
      if (row.name != "transformer") continue;
      const auto known = side_of.emplace(row.class_name, pipeline.text_side).first;
      EXPECT_EQ(known->second, pipeline.text_side) << pipeline.class_name;
    }
  }
  EXPECT_LT(side_of.size(), PipelineTable().size());
}

TEST(DiffusersDirectoryTest, AConfigOfAnotherClassThanTheIndexSaysIsRefused) {
  const fs::path directory = StableDiffusion("swapped");
  Overwrite(directory / "vae" / "config.json", R"({"_class_name":"AutoencoderTiny"})");
  const auto status = OpenDiffusersDirectory(directory).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("AutoencoderTiny"));
}

TEST(DiffusersDirectoryTest, APathThatIsNoModelIsExplained) {
  const fs::path model = Written("explained");
  const auto why = [](const fs::path& path) {
    return std::string(OpenDiffusersDirectory(path).status().message());
  };
  EXPECT_THAT(why(model / "transformer"), HasSubstr("directory above"));
  EXPECT_THAT(why(model / "transformer" / "diffusion_pytorch_model.safetensors"),
              HasSubstr("single-file"));
  EXPECT_THAT(why(model / "tokenizer"), HasSubstr("no model_index.json"));
  EXPECT_EQ(OpenDiffusersDirectory("/nowhere").status().code(), absl::StatusCode::kNotFound);
}

// The latents that each pipeline draws at such scales are in tests/golden/exported.
// Promise: Guidance is the pipeline's own.
TEST(PipelineTableTest, APipelinesOwnScaleOfGuidanceIsOneOfTheUsualFormula) {
  for (const Pipeline& row : PipelineTable()) {
    const bool z_image = row.class_name == "ZImagePipeline";
    EXPECT_EQ(GuidanceScale(row, 4), z_image ? 5 : 4) << row.class_name;
    EXPECT_EQ(GuidanceScale(row, 0.5), z_image ? 1.5 : 1) << row.class_name;
    EXPECT_EQ(GuidanceScale(row, 0), 1) << row.class_name;
  }
}

}  // namespace
}  // namespace oxbow::io
