// SPDX-License-Identifier: Apache-2.0
// Prompts that language models read, against diffusers' encode_prompt on the tiny pipelines of
// tools/make_language_model_goldens.py.
#include <ATen/ATen.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/prompts/encoded_prompts.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Behind the 28 and 31 layers of random weights of FLUX.2's, float32 in diffusers itself is up to
// 1.7e-5 from float64.
double OffAtMost(const std::string& name) { return name.starts_with("flux2") ? 3e-5 : 1e-5; }

fs::path TextGoldens() {
  const char* directory = std::getenv("OXBOW_TEXT_GOLDENS");
  return directory != nullptr ? directory : OXBOW_SOURCE_DIR "/tests/golden/text";
}

// A copy of the tiny pipeline, its text encoder in that type: an encoder computes in what it is
// stored in.
fs::path CopyOf(const std::string& name, at::ScalarType type = at::kFloat) {
  const fs::path model = fs::path(::testing::TempDir()) / absl::StrCat("read_", name);
  fs::remove_all(model);
  fs::copy(TextGoldens() / ("pipeline_" + name), model, fs::copy_options::recursive);
  const fs::path weights = model / "text_encoder/model.safetensors";
  Safetensors file = *ReadSafetensors(weights);
  for (auto& [key, bytes] : file.tensors) bytes = FromTorch(ToTorch(bytes)->to(type));
  EXPECT_TRUE(WriteSafetensors(weights, file).ok());
  return model;
}

absl::StatusOr<std::unique_ptr<EncodedPrompts>> Prompts(const fs::path& model, int64_t tokens,
                                                        at::ScalarType type = at::kFloat) {
  auto components = OpenDiffusersDirectory(model);
  if (!components.ok()) return components.status();
  return EncodedPrompts::Open(*components,
                              {.encoders = {.t5_length = tokens, .dtype = type}, .batch = 4});
}

struct ReadGolden {
  explicit ReadGolden(const std::string& name)
      : file(*ReadSafetensors(TextGoldens() / (name + "_prompts.safetensors"))),
        out(*AllToTorch(file.tensors)),
        texts(nlohmann::json::parse(file.metadata["prompts"]).get<std::vector<std::string>>()),
        tokens(std::stoll(file.metadata["t5_length"])) {}
  Safetensors file;
  model::NamedTensors out;
  std::vector<std::string> texts;
  int64_t tokens;
};

double Difference(const at::Tensor& ours, const at::Tensor& golden) {
  EXPECT_EQ(ours.sizes(), golden.sizes());
  return (ours - golden).abs().max().item<double>() / golden.abs().max().item<double>();
}

class LanguageModelSideTest : public ::testing::TestWithParam<const char*> {};

// Promise: Prompts become the tokens of transformers.
TEST_P(LanguageModelSideTest, PromptsAreReadAsDiffusersHasThem) {
  const ReadGolden golden(GetParam());
  const auto prompts = Prompts(CopyOf(GetParam()), golden.tokens);
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  const auto read = (*prompts)->Get(golden.texts);
  ASSERT_TRUE(read.ok()) << read.status();
  const double off_at_most = OffAtMost(GetParam());
  EXPECT_LE(Difference(read->at(model::kPromptTokens), golden.out.at("out.tokens")), off_at_most);
  EXPECT_EQ(read->contains(model::kPromptMask), golden.out.contains("out.mask"));
  if (golden.out.contains("out.mask")) {
    EXPECT_TRUE(at::equal(read->at(model::kPromptMask), golden.out.at("out.mask")));
  }
  const auto alone = (*prompts)->Get({golden.texts[0]});
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_LE(
      Difference(alone->at(model::kPromptTokens), read->at(model::kPromptTokens).narrow(0, 0, 1)),
      off_at_most);
}

// Weights that are stored in 16 bits are computed in them, and so are those that a run says are.
TEST_P(LanguageModelSideTest, ShortTypesComeClose) {
  const ReadGolden golden(GetParam());
  for (const auto& [stored, asked] :
       {std::pair(at::kBFloat16, at::kFloat), std::pair(at::kFloat, at::kBFloat16)}) {
    const auto prompts = Prompts(CopyOf(GetParam(), stored), golden.tokens, asked);
    ASSERT_TRUE(prompts.ok()) << prompts.status();
    const auto read = (*prompts)->Get(golden.texts);
    ASSERT_TRUE(read.ok()) << read.status();
    const double off = Difference(read->at(model::kPromptTokens), golden.out.at("out.tokens"));
    EXPECT_GT(off, OffAtMost(GetParam()));
    EXPECT_LT(off, std::string(GetParam()).starts_with("flux2") ? 1 : 0.1);
  }
}

INSTANTIATE_TEST_SUITE_P(Pipelines, LanguageModelSideTest,
                         ::testing::Values("qwen_image", "z_image", "flux2_dev", "flux2_klein"),
                         [](const auto& info) { return std::string(info.param); });

TEST(LanguageModelTemplateTest, TokensOfTheTemplateCountAndOneOfAnotherModelIsRefused) {
  const auto components = OpenDiffusersDirectory(TextGoldens() / "pipeline_z_image");
  const auto cut = CountCut(*components, 30, {"a", "a prompt that is longer than what is left"});
  ASSERT_TRUE(cut.ok() && cut->has_value()) << cut.status();
  EXPECT_EQ((*cut)->cut, 1u);
  EXPECT_EQ((*cut)->tokens_max, 30);
  EXPECT_TRUE((*cut)->settable());
  const auto nothing = Prompts(TextGoldens() / "pipeline_flux2_klein", 20);
  EXPECT_THAT(std::string(nothing.status().message()), HasSubstr("nothing of a prompt is left"));

  const fs::path model = CopyOf("flux2_klein");
  ASSERT_TRUE(
      WriteFileAtomically(model / "tokenizer/chat_template.jinja", "<|im_start|><|im_end|>").ok());
  const auto other = Prompts(model, 64);
  EXPECT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("enable_thinking"));
}

TEST(LanguageModelTemplateTest, AnEncoderOfAnotherWidthIsRefused) {
  const fs::path model = CopyOf("z_image");
  auto config = nlohmann::json::parse(*ReadFile(model / "transformer/config.json"));
  config["cap_feat_dim"] = 15;
  ASSERT_TRUE(WriteFileAtomically(model / "transformer/config.json", config.dump()).ok());
  const auto status = Prompts(model, 64).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cap_feat_dim is 15"));
}

}  // namespace
}  // namespace oxbow::io
