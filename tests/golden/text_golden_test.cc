// SPDX-License-Identifier: Apache-2.0
// Text encoders, tokenizers and prompt composition against transformers' and diffusers', on every
// file in a directory of tools/make_text_goldens.py: OXBOW_TEXT_GOLDENS, or tests/golden/text. Both
// sides are float32 with sums in different orders; nothing else may differ. Token ids are equal.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "core/model/clip_text.h"
#include "core/model/t5.h"
#include "core/model/text_conditioning.h"
#include "gtest/gtest.h"
#include "io/clip_tokenizer.h"
#include "io/safetensors.h"
#include "io/t5_tokenizer.h"
#include "io/tensor_torch.h"

namespace oxbow::model {
namespace {

namespace fs = std::filesystem;

constexpr double kTolerance = 1e-5;

fs::path Goldens() {
  const char* directory = std::getenv("OXBOW_TEXT_GOLDENS");
  return directory != nullptr ? directory : OXBOW_SOURCE_DIR "/tests/golden/text";
}

// Names of the files that begin and end so, without the ending.
std::vector<std::string> FilesOf(const std::string& beginning, const std::string& ending) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(Goldens())) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(beginning) && name.ends_with(ending)) {
      names.insert(name.substr(0, name.size() - ending.size()));
    }
  }
  return {names.begin(), names.end()};
}

// The tensors of a golden file by section, and its metadata.
struct Golden {
  explicit Golden(const std::string& name) {
    auto file = io::ReadSafetensors(Goldens() / (name + ".safetensors"));
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

void ExpectClose(const std::string& what, const at::Tensor& ours, const at::Tensor& golden) {
  ASSERT_EQ(ours.sizes(), golden.sizes()) << what;
  const double difference = (ours - golden).abs().max().item<double>();
  std::cout << what << ": max difference " << difference << " of "
            << golden.abs().max().item<double>() << "\n";
  EXPECT_LE(difference, kTolerance) << what;
}

// A prompt alone and among others: equal up to rounding, for widths that fill no vector register.
void ExpectSame(const std::string& what, const at::Tensor& alone, const at::Tensor& among) {
  EXPECT_LE((alone - among).abs().max().item<double>(), 1e-5) << what;
}

at::Tensor OnlyRow(const at::Tensor& x, int64_t row) { return x.narrow(0, row, 1).contiguous(); }

class TextGoldenTest : public ::testing::Test {
 private:
  const at::NoGradGuard no_gradients_;
};

TEST_F(TextGoldenTest, ClipEncodersGiveWhatTransformersGives) {
  const std::vector<std::string> files = FilesOf("clip_", ".safetensors");
  EXPECT_GE(files.size(), 6u);
  for (const std::string& name : files) {
    const Golden golden(name);
    const auto params = ParseClipTextConfig(golden.metadata.at("config"));
    ASSERT_TRUE(params.ok()) << params.status();
    const auto encoder = MakeClipTextEncoder(*params, golden.weights);
    ASSERT_TRUE(encoder.ok()) << encoder.status();
    const at::Tensor ids = golden.in.at("ids");
    const ClipTextOutput text = (*encoder)->Encode(ids);
    ExpectClose(name + " penultimate", text.penultimate, golden.out.at("penultimate"));
    ExpectClose(name + " pooled", text.pooled, golden.out.at("pooled"));
    const ClipTextOutput alone = (*encoder)->Encode(OnlyRow(ids, 0));
    ExpectSame(name, alone.pooled, OnlyRow(text.pooled, 0));
    ExpectSame(name, alone.penultimate, OnlyRow(text.penultimate, 0));
  }
}

TEST_F(TextGoldenTest, T5EncodersGiveWhatTransformersGives) {
  const std::vector<std::string> files = FilesOf("t5_", ".safetensors");
  EXPECT_GE(files.size(), 6u);
  for (const std::string& name : files) {
    const Golden golden(name);
    const auto params = ParseT5Config(golden.metadata.at("config"));
    ASSERT_TRUE(params.ok()) << params.status();
    const auto encoder = MakeT5Encoder(*params, golden.weights);
    ASSERT_TRUE(encoder.ok()) << encoder.status();
    const at::Tensor ids = golden.in.at("ids");
    const at::Tensor mask = golden.in.contains("mask") ? golden.in.at("mask") : at::Tensor();
    const at::Tensor hidden = (*encoder)->Encode(ids, mask);
    ExpectClose(name, hidden, golden.out.at("hidden"));
    const at::Tensor alone =
        (*encoder)->Encode(OnlyRow(ids, 0), mask.defined() ? OnlyRow(mask, 0) : mask);
    ExpectSame(name, alone, OnlyRow(hidden, 0));
  }
}

// Ids of a golden tokens file, with the tokenizer of a directory.
template <typename Tokenizer>
void ExpectIds(const nlohmann::json& golden, const fs::path& directory) {
  const auto tokenizer = Tokenizer::Load(directory);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  int different = 0;
  for (const auto& item : golden["cases"]) {
    const auto prompt = item["prompt"].get<std::string>();
    const auto ids = item["ids"].get<std::vector<int64_t>>();
    if (tokenizer->Encode(prompt, golden["max_length"].get<int64_t>()) == ids) continue;
    if (++different <= 10) {
      ADD_FAILURE() << item["prompt"].dump(-1, ' ', /*ensure_ascii=*/true) << "\n ours "
                    << ::testing::PrintToString(tokenizer->Encode(prompt, golden["max_length"]))
                    << "\n     " << ::testing::PrintToString(ids);
    }
  }
  EXPECT_EQ(different, 0) << "of " << golden["cases"].size() << " prompts";
  std::cout << golden["class"] << " " << directory << ": " << golden["cases"].size() << " prompts, "
            << different << " different\n";
}

void ExpectIdsOfClass(const nlohmann::json& golden, const fs::path& directory) {
  if (golden["class"] == "T5Tokenizer") {
    ExpectIds<io::T5Tokenizer>(golden, directory);
  } else {
    ExpectIds<io::ClipTokenizer>(golden, directory);
  }
}

// The tokenizer of each file is beside it or at an absolute path.
// Promise: Prompts become the tokens of transformers. CLIP's and T5's tokenizers give the ids of
// transformers, from `tokenizer.json` or from the older files. UMT5's vocabulary with byte pieces
// is among them. FLUX.1's, Wan's and LTX-Video's prompts become what diffusers' `encode_prompt`
// gives, Wan's after the cleaning of its pipeline. `oxbow validate` finds a directory whose text
// side cannot be opened.
TEST_F(TextGoldenTest, AwkwardPromptsGetTheIdsOfTransformers) {
  const std::vector<std::string> files = FilesOf("tokens_", ".json");
  EXPECT_FALSE(files.empty());
  for (const std::string& name : files) {
    const auto golden = nlohmann::json::parse(*ReadFile(Goldens() / (name + ".json")));
    ExpectIdsOfClass(golden, Goldens() / golden["directory"].get<std::string>());
  }
}

// transformers 5 saves a tokenizer as tokenizer.json alone.
// Promise: Prompts become the tokens of transformers.
TEST_F(TextGoldenTest, TokenizersInOneFileGiveTheSameIds) {
  for (const std::string& name : FilesOf("tokens_", ".json")) {
    const auto golden = nlohmann::json::parse(*ReadFile(Goldens() / (name + ".json")));
    const fs::path directory = golden["directory"].get<std::string>();
    const bool wan = directory.parent_path().filename() == "pipeline_wan";
    const fs::path folder = wan ? "tokenizer_umt5" : directory.filename();
    ExpectIdsOfClass(golden, Goldens() / "tokenizer_json" / folder);
  }
}

}  // namespace
}  // namespace oxbow::model
