#include "io/diffusers_directory.h"

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/lora_file.h"
#include "io/safetensors.h"

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
  const fs::path directory = fs::path(testing::TempDir()) / name;
  fs::remove_all(directory);
  const absl::Status status =
      WriteDiffusersDirectory(directory, {.transformer_config_json = "{\"num_layers\":3}",
                                          .transformer = {{"a", Float(1)}, {"b", Float(2)}},
                                          .text_encoder_config_json = "{}",
                                          .text_encoder = {{"t", Float(3)}},
                                          .tokenizer_files = {{"vocab.json", "{}"}},
                                          .metadata = {{"step", "7"}}});
  EXPECT_TRUE(status.ok()) << status;
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
  const auto weights = ReadComponentWeights(components->at("transformer"));
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->at("b").data, Float(2).data);
  EXPECT_EQ(ReadComponentWeights(components->at("text_encoder"))->size(), 1u);
}

TEST(DiffusersDirectoryTest, TheShardedIndexComesFirstAndFp16Last) {
  const fs::path directory = Written("shards");
  const fs::path folder = directory / "transformer";
  const auto components = OpenDiffusersDirectory(directory);
  ASSERT_TRUE(components.ok());
  const DiffusersComponent& transformer = components->at("transformer");
  fs::rename(folder / "diffusion_pytorch_model.safetensors",
             folder / "diffusion_pytorch_model.fp16.safetensors");
  EXPECT_EQ(ReadComponentWeights(transformer)->size(), 2u);
  ASSERT_TRUE(WriteSafetensors(folder / "x-1.safetensors", {.tensors = {{"a", Float(5)}}}).ok());
  ASSERT_TRUE(WriteSafetensors(folder / "x-2.safetensors", {.tensors = {{"c", Float(6)}}}).ok());
  const fs::path index = folder / "diffusion_pytorch_model.safetensors.index.json";
  Overwrite(index, R"({"weight_map":{"a":"x-1.safetensors","c":"x-2.safetensors"}})");
  const auto weights = ReadComponentWeights(transformer);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->at("a").data, Float(5).data);
  EXPECT_EQ(weights->size(), 2u);
  Overwrite(index, R"({"weight_map":{"a":"x-1.safetensors","d":"x-2.safetensors"}})");
  EXPECT_EQ(ReadComponentWeights(transformer).status().code(), absl::StatusCode::kDataLoss);
  Overwrite(index, R"({"weight_map":{"a":"../x-1.safetensors"}})");
  EXPECT_EQ(ReadComponentWeights(transformer).status().code(), absl::StatusCode::kDataLoss);
  Overwrite(index, R"({"weight_map":{"a":"x-3.safetensors"}})");
  EXPECT_EQ(ReadComponentWeights(transformer).status().code(), absl::StatusCode::kNotFound);
}

TEST(DiffusersDirectoryTest, UnsupportedClassesAreNamedWithTheSupportedOnes) {
  const fs::path directory = Written("unsupported");
  Overwrite(directory / "model_index.json",
            R"({"transformer":["diffusers","FluxTransformer2DModel"]})");
  const auto status = OpenDiffusersDirectory(directory).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("FluxTransformer2DModel"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("SD3Transformer2DModel"));
  Overwrite(directory / "model_index.json", R"({"_class_name":"FluxPipeline"})");
  EXPECT_EQ(OpenDiffusersDirectory(directory).status().code(), absl::StatusCode::kInvalidArgument);
  Overwrite(directory / "model_index.json", "{");
  EXPECT_EQ(OpenDiffusersDirectory(directory).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(OpenDiffusersDirectory("/nowhere").status().code(), absl::StatusCode::kNotFound);
}

TEST(DiffusersDirectoryTest, AShiftIsStaticOrFollowsThePicturesSize) {
  const auto shift = [](const std::string& json) {
    return SchedulerShift({.config_json = json}, /*image_tokens=*/1024);
  };
  EXPECT_EQ(*shift("{}"), 1);
  EXPECT_EQ(*shift(R"({"shift": 3.0})"), 3);
  EXPECT_NEAR(*shift(R"({"shift": 3.0, "use_dynamic_shifting": true})"), std::exp(0.63), 1e-12);
  EXPECT_NEAR(*shift(R"({"use_dynamic_shifting": true, "base_shift": 0.4, "max_shift": 1.3,
                         "base_image_seq_len": 128, "max_image_seq_len": 1152})"),
              std::exp(0.4 + 0.9 * 896 / 1024), 1e-12);
  EXPECT_EQ(shift(R"({"use_dynamic_shifting": true, "time_shift_type": "linear"})").status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(shift(R"({"shift": 0})").status().code(), absl::StatusCode::kDataLoss);
}

TEST(LoraFileTest, FoldsAlphaIntoBAndDeclaresItEqualToTheRank) {
  const fs::path directory = fs::path(testing::TempDir()) / "adapter";
  const std::string module = "transformer_blocks.0.attn.to_q";
  LoraExport lora{
      .tensors = {{module + ".lora_A.weight", Float(3)}, {module + ".lora_B.weight", Float(5)}},
      .rank = 4,
      .alpha = 8,
      .targets = {"attn.to_q"},
      .provenance = {{"oxbow.step", "7"}}};
  ASSERT_TRUE(WriteDiffusersLora(directory, lora).ok());
  const auto file = ReadSafetensors(directory / "pytorch_lora_weights.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors.size(), 2u);
  EXPECT_EQ(file->tensors.at("transformer." + module + ".lora_A.weight").data, Float(3).data);
  EXPECT_EQ(file->tensors.at("transformer." + module + ".lora_B.weight").data, Float(10).data);
  EXPECT_EQ(file->metadata.at("lora_adapter_metadata"),
            R"({"transformer.r":4,"transformer.lora_alpha":4,)"
            R"("transformer.target_modules":["attn.to_q"]})");
  lora.tensors["other"] = Float(1);
  EXPECT_EQ(WriteDiffusersLora(directory, lora).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace oxbow::io
