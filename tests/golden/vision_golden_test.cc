// SPDX-License-Identifier: Apache-2.0
// CLIP's image encoder against transformers' and open_clip's, and its preprocessing against
// transformers' and torchvision's, on every file in a directory of tools/make_vision_goldens.py:
// OXBOW_VISION_GOLDENS, or tests/golden/vision. In float32 sums are in different orders; nothing
// else may differ.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/model/clip_pixels.h"
#include "core/model/clip_text.h"
#include "core/model/clip_vision.h"
#include "core/model/open_clip_names.h"
#include "core/reward/clip_crop.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"

namespace oxbow::model {
namespace {

namespace fs = std::filesystem;

fs::path Goldens() {
  const char* directory = std::getenv("OXBOW_VISION_GOLDENS");
  return directory != nullptr ? directory : OXBOW_SOURCE_DIR "/tests/golden/vision";
}

std::vector<fs::path> FilesOf(const std::string& kind) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(Goldens())) {
    if (entry.path().filename().string().starts_with(kind)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The tensors of a golden file by section, and its metadata.
struct Golden {
  explicit Golden(const fs::path& path) {
    auto file = io::ReadSafetensors(path);
    EXPECT_TRUE(file.ok()) << file.status();
    if (!file.ok()) return;
    metadata = file->metadata;
    for (const auto& [key, bytes] : file->tensors) {
      const at::Tensor tensor = *io::ToTorch(bytes);
      if (key.starts_with("weight.")) weights[key.substr(7)] = tensor.to(at::kFloat);
      if (key.starts_with("in.")) in[key.substr(3)] = tensor;
      if (key.starts_with("out.")) out[key.substr(4)] = tensor;
    }
  }
  std::map<std::string, std::string> metadata;
  NamedTensors weights, in, out;
};

double Difference(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return a.sizes() == b.sizes() ? (a - b).abs().max().item<double>() : 1e9;
}

void ExpectClose(const std::string& what, const at::Tensor& ours, const at::Tensor& golden,
                 double tolerance = 1e-5) {
  const double difference = Difference(ours.to(at::kFloat), golden);
  std::cout << what << ": max difference " << difference << " of "
            << golden.abs().max().item<double>() << "\n";
  EXPECT_LE(difference, tolerance) << what;
}

std::unique_ptr<ClipVisionEncoder> EncoderOf(const std::string& config, const NamedTensors& weights,
                                             at::ScalarType type) {
  NamedTensors typed;
  for (const auto& [name, tensor] : weights) typed[name] = tensor.to(type);
  const auto params = ParseClipVisionConfig(config);
  EXPECT_TRUE(params.ok()) << params.status();
  auto encoder = MakeClipVisionEncoder(*params, typed);
  EXPECT_TRUE(encoder.ok()) << encoder.status();
  return *std::move(encoder);
}

// Promise: Rewards are those of their projects.
class VisionGoldenTest : public ::testing::Test {
 private:
  const at::NoGradGuard no_gradients_;
};

TEST_F(VisionGoldenTest, ImageEncodersGiveWhatTransformersGives) {
  const std::vector<fs::path> files = FilesOf("clip_");
  EXPECT_GE(files.size(), 6u);
  for (const fs::path& file : files) {
    const Golden golden(file);
    const std::string name = file.stem(), config = golden.metadata.at("config");
    const at::Tensor pixels = golden.in.at("pixels");
    const auto encoder = EncoderOf(config, golden.weights, at::kFloat);
    const at::Tensor embeds = encoder->Encode(pixels);
    ExpectClose(name, embeds, golden.out.at("embeds"));
    ExpectClose(name + " alone", encoder->Encode(pixels.narrow(0, 0, 1)), embeds.narrow(0, 0, 1));
  }
}

// Rounding of weights and activations moves results by about the type's precision; both sides lie
// as far from float32 as from each other.
TEST_F(VisionGoldenTest, HalfTypesGiveWhatTransformersGives) {
  for (const fs::path& file : FilesOf("clip_")) {
    const Golden golden(file);
    const double scale = golden.out.at("embeds").abs().max().item<double>();
    for (const auto& [kind, type, precision] :
         {std::tuple("bf16", at::kBFloat16, 0.04), std::tuple("fp16", at::kHalf, 0.005)}) {
      const auto encoder = EncoderOf(golden.metadata.at("config"), golden.weights, type);
      const at::Tensor embeds = encoder->Encode(golden.in.at("pixels"));
      EXPECT_EQ(embeds.scalar_type(), type);
      ExpectClose(file.stem().string() + " " + kind, embeds,
                  golden.out.at(std::string("embeds_") + kind), precision * scale);
    }
  }
}

NamedTensors Only(const NamedTensors& tensors, const std::string& tower,
                  const std::string& projection) {
  NamedTensors only;
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(tower) || name == projection) only[name] = tensor;
  }
  return only;
}

TEST_F(VisionGoldenTest, OpenClipsNamesGiveWhatOpenClipGives) {
  const std::vector<fs::path> files = FilesOf("open_clip_");
  EXPECT_GE(files.size(), 6u);
  for (const fs::path& file : files) {
    const Golden golden(file);
    ASSERT_TRUE(AreOpenClip(golden.weights));
    const auto weights = FromOpenClip(golden.weights);
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_FALSE(AreOpenClip(*weights));
    const auto config = nlohmann::json::parse(golden.metadata.at("config"));
    const auto image =
        EncoderOf(config["vision_config"].dump(),
                  Only(*weights, "vision_model.", "visual_projection.weight"), at::kFloat);
    ExpectClose(file.stem().string() + " image", image->Encode(golden.in.at("pixels")),
                golden.out.at("image"));
    const auto text = MakeClipTextEncoder(*ParseClipTextConfig(config["text_config"].dump()),
                                          Only(*weights, "text_model.", "text_projection.weight"));
    ASSERT_TRUE(text.ok()) << text.status();
    ExpectClose(file.stem().string() + " text", (*text)->Encode(golden.in.at("ids")),
                golden.out.at("text"));
  }
}

TEST_F(VisionGoldenTest, AFusedWeightThatIsNotThreeIsRefused) {
  NamedTensors tensors = {{"visual.transformer.resblocks.0.attn.in_proj_bias", at::zeros({7})}};
  EXPECT_THAT(std::string(FromOpenClip(tensors).status().message()),
              ::testing::HasSubstr("vision_model.encoder.layers.0.attn.in_proj_bias"));
  tensors = {{"visual.novel", at::zeros({1})}};
  EXPECT_TRUE(FromOpenClip(tensors)->contains("visual.novel"));
}

TEST_F(VisionGoldenTest, PreprocessingGivesWhatEachSourceGives) {
  const std::vector<fs::path> files = FilesOf("pixels_");
  EXPECT_GE(files.size(), 6u);
  for (const fs::path& file : files) {
    const Golden golden(file);
    const at::Tensor& bytes = golden.in.at("image");
    const Image8 image{static_cast<int>(bytes.size(1)),
                       static_cast<int>(bytes.size(0)),
                       3,
                       {bytes.data_ptr<uint8_t>(), bytes.data_ptr<uint8_t>() + bytes.numel()}};
    const int side = std::stoi(golden.metadata.at("side"));
    EXPECT_TRUE(at::equal(ClipPixels({reward::ClipCrop(image, side)}).squeeze(0),
                          golden.out.at("processor")))
        << file;
    const at::Tensor unit = UnitPixels(image);
    const std::string name = file.stem();
    ExpectClose(name + " bilinear", NormaliseForClip(ResizeShorterAndCrop(unit, side)),
                golden.out.at("bilinear"));
    ExpectClose(name + " padded", NormaliseForClip(ResizeLongerAndPad(unit, side)),
                golden.out.at("padded"));
  }
}

TEST_F(VisionGoldenTest, DefectsAreNamed) {
  const auto refused = [](const std::string& config) {
    return std::string(ParseClipVisionConfig(config).status().message());
  };
  EXPECT_THAT(refused("[]"), ::testing::HasSubstr("not a JSON object"));
  EXPECT_THAT(refused(R"({"patch_size": 0})"), ::testing::HasSubstr("patch_size is not a size: 0"));
  EXPECT_THAT(refused(R"({"patch_size": 15})"),
              ::testing::HasSubstr("not divisible by patch_size"));
  EXPECT_THAT(refused(R"({"hidden_size": 100})"), ::testing::HasSubstr("not divisible by heads"));
  EXPECT_THAT(refused(R"({"hidden_act": "relu"})"), ::testing::HasSubstr("\"relu\""));
  EXPECT_THAT(refused(R"({"num_channels": 4})"), ::testing::HasSubstr("num_channels"));
  const Golden golden(FilesOf("clip_").front());
  const auto params = ParseClipVisionConfig(golden.metadata.at("config"));
  NamedTensors weights = golden.weights;
  weights.erase("vision_model.pre_layrnorm.bias");
  weights["extra"] = at::zeros({1});
  const auto made = MakeClipVisionEncoder(*params, weights);
  EXPECT_THAT(std::string(made.status().message()),
              ::testing::HasSubstr("missing: vision_model.pre_layrnorm.bias; unexpected: extra"));
}

TEST_F(VisionGoldenTest, PublishedSizesHaveTheirParameters) {
  const auto count = [](const ClipVisionParams& params) {
    int64_t all = 0;
    for (const auto& [name, shape] : ClipVisionShapes(params)) {
      int64_t numel = 1;
      for (const int64_t size : shape) numel *= size;
      all += numel;
    }
    return all;
  };
  // transformers' counts of openai/clip-vit-base-patch32, -large-patch14, and laion's H/14.
  EXPECT_EQ(count({}), 87'849'216);
  EXPECT_EQ(count({.hidden_size = 1024,
                   .intermediate_size = 4096,
                   .projection_dim = 768,
                   .num_hidden_layers = 24,
                   .num_attention_heads = 16,
                   .patch_size = 14}),
            303'966'208);
  EXPECT_EQ(count({.hidden_size = 1280,
                   .intermediate_size = 5120,
                   .projection_dim = 1024,
                   .num_hidden_layers = 32,
                   .num_attention_heads = 16,
                   .patch_size = 14,
                   .hidden_act = "gelu"}),
            632'076'800);
}

}  // namespace
}  // namespace oxbow::model
