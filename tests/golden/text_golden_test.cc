// SPDX-License-Identifier: Apache-2.0
// Text encoders, tokenizers and prompt composition against transformers' and diffusers', on every
// file in a directory of tools/make_text_goldens.py: OXBOW_TEXT_GOLDENS, or tests/golden/text. Both
// sides are float32 with sums in different orders; nothing else may differ. Token ids are equal.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "core/model/exported_graph/exported_network.h"
#include "core/model/text_encoder.h"
#include "gtest/gtest.h"
#include "io/clip_tokenizer.h"
#include "io/graph_files.h"
#include "io/prompts/encoder_files.h"
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

// The encoder of a golden file, of the graph beside it.
std::unique_ptr<TextEncoder> EncoderOf(const std::string& name, const Golden& golden,
                                       const std::string& class_name) {
  const auto json = io::ReadGraphFile(Goldens() / (name + ".graph.json.gz"));
  EXPECT_TRUE(json.ok()) << json.status();
  const auto graph = exported::ParseNetwork(*json, class_name, golden.metadata.at("config"));
  EXPECT_TRUE(graph.ok()) << graph.status();
  NamedTensors weights = golden.weights;
  if (const auto table = weights.extract("encoder.embed_tokens.weight"); !table.empty()) {
    weights.emplace("shared.weight", table.mapped());
  }
  auto encoder = TextEncoder::Make(*graph, weights, {});
  EXPECT_TRUE(encoder.ok()) << encoder.status();
  return *std::move(encoder);
}

TEST_F(TextGoldenTest, ClipEncodersGiveWhatTransformersGives) {
  const std::vector<std::string> files = FilesOf("clip_", ".safetensors");
  EXPECT_GE(files.size(), 6u);
  for (const std::string& name : files) {
    const Golden golden(name);
    const auto encoder = EncoderOf(name, golden, "CLIPTextModelWithProjection");
    const at::Tensor ids = golden.in.at("ids");
    const NamedTensors text = *encoder->Encode({ids, {}});
    const NamedTensors alone = *encoder->Encode({OnlyRow(ids, 0), {}});
    for (const char* output : {"penultimate", "pooled"}) {
      ExpectClose(name + " " + output, text.at(output), golden.out.at(output));
      ExpectSame(name, alone.at(output), OnlyRow(text.at(output), 0));
    }
  }
}

TEST_F(TextGoldenTest, T5EncodersGiveWhatTransformersGives) {
  const std::vector<std::string> files = FilesOf("t5_", ".safetensors");
  EXPECT_GE(files.size(), 7u);
  for (const std::string& name : files) {
    const Golden golden(name);
    const bool masked = golden.in.contains("mask");  // UMT5's are, T5's are not.
    const auto encoder = EncoderOf(name, golden, masked ? "UMT5EncoderModel" : "T5EncoderModel");
    const TokenIds texts = {golden.in.at("ids"), masked ? golden.in.at("mask") : at::Tensor()};
    const at::Tensor hidden = encoder->Encode(texts)->at("hidden");
    ExpectClose(name, hidden, golden.out.at("hidden"));
    const TokenIds first = {OnlyRow(texts.ids, 0), masked ? OnlyRow(texts.mask, 0) : at::Tensor()};
    ExpectSame(name, encoder->Encode(first)->at("hidden"), OnlyRow(hidden, 0));
  }
}

// The hidden states of a golden file's first prompts in products of a type.
at::Tensor HiddenIn(at::ScalarType type, const std::string& name, double last_products = 1) {
  const Golden golden(name);
  auto graph = exported::ParseNetwork(*io::ReadGraphFile(Goldens() / (name + ".graph.json.gz")),
                                      "T5EncoderModel", golden.metadata.at("config"));
  NamedTensors weights = golden.weights;
  for (auto& [key, tensor] : weights) {
    if (key.ends_with(".wo.weight")) tensor = tensor * last_products;
  }
  const auto encoder = *TextEncoder::Make(*std::move(graph), weights, {.compute = type});
  return encoder->Encode({golden.in.at("ids"), {}})->at("hidden");
}

// Values of the type, so that they need half the room on disk.
TEST_F(TextGoldenTest, SixteenBitProductsGiveNearlyTheSame) {
  const at::Tensor exact = HiddenIn(at::kFloat, "t5_small");
  for (const auto& [type, tolerance] :
       {std::pair(at::kBFloat16, 0.1), std::pair(at::kHalf, 0.02)}) {
    const at::Tensor rough = HiddenIn(type, "t5_small");
    EXPECT_LT((rough - exact).abs().max().item<double>(), tolerance) << at::toString(type);
    EXPECT_GT((rough - exact).abs().max().item<double>(), 0) << at::toString(type);
    EXPECT_TRUE(at::equal(rough.to(type).to(at::kFloat), rough)) << at::toString(type);
  }
}

// The last product of the published weights leaves float16, and so does the sum of the blocks.
TEST_F(TextGoldenTest, HalfPrecisionDoesNotOverflow) {
  const at::Tensor exact = HiddenIn(at::kFloat, "t5_small", 1e6);
  const at::Tensor half = HiddenIn(at::kHalf, "t5_small", 1e6);
  EXPECT_TRUE(half.isfinite().all().item<bool>());
  EXPECT_LT((half - exact).abs().max().item<double>(), 0.05);
}

TEST_F(TextGoldenTest, HiddenTokensChangeNothing) {
  const auto encoder = EncoderOf("t5_masked", Golden("t5_masked"), "UMT5EncoderModel");
  const at::Tensor ids = at::arange(12, at::kLong).view({1, 12});
  const at::Tensor mask = at::arange(12).lt(9).view({1, 12});
  const auto first = [&](const TokenIds& texts) {
    return encoder->Encode(texts)->at("hidden").narrow(1, 0, 9);
  };
  const at::Tensor alone = first({ids.narrow(1, 0, 9), {}});
  EXPECT_TRUE(at::allclose(first({ids, mask}), alone, 0, 1e-5));
  EXPECT_GT((first({ids, {}}) - alone).abs().max().item<double>(), 0.01);
}

// The encoder of a directory that comes with oxbow: its widths fill vector registers.
std::unique_ptr<TextEncoder> Shipped(const std::string& model) {
  const auto components = io::OpenDiffusersDirectory(OXBOW_SOURCE_DIR "/models/" + model);
  EXPECT_TRUE(components.ok()) << components.status();
  const auto files = io::OpenEncoder(components->at("text_encoder"));
  EXPECT_TRUE(files.ok()) << files.status();
  auto encoder = io::LoadEncoder(*files, {});
  EXPECT_TRUE(encoder.ok()) << encoder.status();
  return *std::move(encoder);
}

TEST_F(TextGoldenTest, APromptHasTheSameBitsInEveryBatch) {
  at::set_num_threads(1);
  for (const auto& [model, length] : {std::pair("clip", 3), std::pair("clip", 16),
                                      std::pair("clip", 40), std::pair("digits", 6)}) {
    const auto encoder = Shipped(model);
    at::Tensor ids = at::arange(40 * length, at::kLong).remainder(23).view({40, length});
    if (model == std::string("digits")) ids.select(1, length - 1).fill_(516);
    const NamedTensors all = *encoder->Encode({ids, {}});
    for (int64_t size = 1; size <= 40; size += size < 12 ? 1 : 7) {
      const NamedTensors part = *encoder->Encode({ids.narrow(0, 40 - size, size), {}});
      for (const auto& [name, output] : part) {
        EXPECT_TRUE(at::equal(output, all.at(name).narrow(0, 40 - size, size)))
            << model << ", " << name << ", " << length << " tokens, " << size << " texts";
      }
    }
  }
}

TEST_F(TextGoldenTest, GraphsOfOtherInputsAreRefused) {
  const Golden golden("t5_small");
  auto graph = *exported::ParseNetwork(*io::ReadGraphFile(Goldens() / "t5_small.graph.json.gz"),
                                       "T5EncoderModel", golden.metadata.at("config"));
  graph.inputs[0].name = "tokens";
  const absl::Status status = TextEncoder::Make(graph, golden.weights, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "T5EncoderModel: inputs: not ids [B, S] int64, and perhaps mask [B, S] float32");
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
