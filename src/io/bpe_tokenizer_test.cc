// SPDX-License-Identifier: Apache-2.0
// Ids against transformers', on the byte_pairs_*.json of tools/make_language_model_goldens.py:
// OXBOW_TEXT_GOLDENS, or tests/golden/text.
#include "io/bpe_tokenizer.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

fs::path BpeGoldens() {
  const char* directory = std::getenv("OXBOW_TEXT_GOLDENS");
  return directory != nullptr ? directory : OXBOW_SOURCE_DIR "/tests/golden/text";
}

// The small tokenizer of that name with its tokenizer.json changed by `change`.
template <typename Change>
fs::path Changed(const std::string& name, const Change& change) {
  const fs::path directory = fs::path(::testing::TempDir()) / "changed_bpe";
  fs::remove_all(directory);
  fs::copy(BpeGoldens() / name, directory, fs::copy_options::recursive);
  auto file = nlohmann::json::parse(*ReadFile(directory / kTokenizerJson));
  change(file);
  EXPECT_TRUE(WriteFileAtomically(directory / kTokenizerJson, file.dump()).ok());
  return directory;
}

// Promise: Prompts become the tokens of transformers.
TEST(BpeTokenizerTest, TextsOfAnyScriptGetTheIdsOfTransformers) {
  for (const char* name : {"qwen2", "tekken"}) {
    const auto golden =
        nlohmann::json::parse(*ReadFile(BpeGoldens() / absl::StrCat("byte_pairs_", name, ".json")));
    const auto tokenizer = BpeTokenizer::Load(BpeGoldens() / golden["directory"]);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    ASSERT_GT(golden["cases"].size(), 400u);
    int different = 0;
    for (const auto& item : golden["cases"]) {
      const auto ids = tokenizer->Ids(item["text"].get<std::string>());
      if (ids == item["ids"].get<std::vector<int64_t>>() || ++different > 10) continue;
      ADD_FAILURE() << name << " " << item["text"].dump(-1, ' ', /*ensure_ascii=*/true)
                    << "\n ours " << ::testing::PrintToString(ids) << "\n      "
                    << item["ids"].dump();
    }
    EXPECT_EQ(different, 0) << name << ", of " << golden["cases"].size();
  }
}

TEST(BpeTokenizerTest, TwoFilesSayTheSameAsOne) {
  const auto one = BpeTokenizer::Load(BpeGoldens() / "tokenizer_qwen2");
  ASSERT_TRUE(one.ok()) << one.status();
  const fs::path directory = Changed("tokenizer_qwen2", [](nlohmann::json&) {});
  const auto file = nlohmann::json::parse(*ReadFile(directory / kTokenizerJson));
  fs::remove(directory / kTokenizerJson);
  std::string merges = "#version: 0.2\n";
  for (const auto& merge : file["model"]["merges"]) {
    absl::StrAppend(&merges, merge[0].get<std::string>(), " ", merge[1].get<std::string>(), "\n");
  }
  auto config = nlohmann::json::parse(*ReadFile(directory / "tokenizer_config.json"));
  for (const auto& token : file["added_tokens"]) {
    config["added_tokens_decoder"][absl::StrCat(token["id"].get<int>())] = token;
  }
  ASSERT_TRUE(WriteFileAtomically(directory / "tokenizer_config.json", config.dump()).ok());
  ASSERT_TRUE(WriteFileAtomically(directory / "vocab.json", file["model"]["vocab"].dump()).ok());
  ASSERT_TRUE(WriteFileAtomically(directory / "merges.txt", merges).ok());
  const auto two = BpeTokenizer::Load(directory);
  ASSERT_TRUE(two.ok()) << two.status();
  for (const char* text : {"a photo of the cat", "it's<|im_end|>\n\n <think>neon glow", "\u4e16"}) {
    EXPECT_EQ(one->Ids(text), two->Ids(text)) << text;
  }
  EXPECT_EQ(one->size(), two->size());
}

TEST(BpeTokenizerTest, SettingsOfTheDirectoryAreRead) {
  const auto qwen2 = BpeTokenizer::Load(BpeGoldens() / "tokenizer_qwen2");
  const auto tekken = BpeTokenizer::Load(BpeGoldens() / "tokenizer_tekken");
  ASSERT_TRUE(qwen2.ok() && tekken.ok());
  EXPECT_EQ(qwen2->Ids("<|endoftext|>"), std::vector<int64_t>{qwen2->pad_id()});
  EXPECT_EQ(tekken->Ids("<pad>"), std::vector<int64_t>{tekken->pad_id()});
  EXPECT_FALSE(qwen2->pads_left());
  EXPECT_TRUE(tekken->pads_left());
  EXPECT_EQ(qwen2->Named("bos_token"), "");
  EXPECT_EQ(tekken->Named("bos_token"), "<s>");
}

TEST(BpeTokenizerTest, AnotherKindOfTokenizerIsNamed) {
  const auto refusal = [](const auto& change) {
    return BpeTokenizer::Load(Changed("tokenizer_tekken", change)).status();
  };
  absl::Status status = refusal(
      [](auto& file) { file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\w+"; });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("neither Qwen2's nor tekken's: \\w+"));
  status = refusal([](auto& file) { file["normalizer"] = {{"type", "NFKC"}}; });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("normalizer NFKC"));
  status = refusal([](auto& file) { file["model"]["end_of_word_suffix"] = "</w>"; });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  status = refusal([](auto& file) { file["model"]["merges"].push_back({"no", "token"}); });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(BpeTokenizer::Load("/nowhere").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace oxbow::io
