// SPDX-License-Identifier: Apache-2.0
// Ids against transformers' CLIPTokenizer, from files of tools/make_model_goldens.py.
#include "io/clip_tokenizer.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "gtest/gtest.h"
#include "io/tokenizer_files.h"

namespace oxbow::io {
namespace {

std::filesystem::path Goldens() {
  const char* directory = std::getenv("OXBOW_MODEL_GOLDENS");
  return directory != nullptr ? directory : OXBOW_SOURCE_DIR "/tests/golden/models";
}

// Promise: Prompts become the tokens of transformers.
TEST(ClipTokenizerTest, AwkwardPromptsGetTheIdsOfTransformers) {
  const auto tokenizer = ClipTokenizer::Load(Goldens() / "tokenizer");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto golden = nlohmann::json::parse(*ReadFile(Goldens() / "tokenizer_ids.json"));
  ASSERT_GT(golden["cases"].size(), 20u);
  for (const auto& item : golden["cases"]) {
    const auto prompt = item["prompt"].get<std::string>();
    EXPECT_EQ(tokenizer->Encode(prompt, golden["max_length"].get<int64_t>()),
              item["ids"].get<std::vector<int64_t>>())
        << prompt;
  }
  EXPECT_EQ(tokenizer->model_max_length(), 24);
}

TEST(ClipTokenizerTest, TheSmallTokenizerHasTheExpectedIds) {
  const auto tokenizer = ClipTokenizer::Load(Goldens() / "../../../models/digits/tokenizer");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->Encode("text 473", 6), (std::vector<int64_t>{515, 514, 275, 278, 274, 516}));
  EXPECT_EQ(tokenizer->Encode("text 4731", 4), (std::vector<int64_t>{515, 514, 275, 516}));
  EXPECT_EQ(tokenizer->Encode("\xff\xfe", 2), (std::vector<int64_t>{515, 516}));
}

TEST(ClipTokenizerTest, MissingAndBrokenFilesAreNamed) {
  const auto directory = std::filesystem::path(::testing::TempDir()) / "broken_tokenizer";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  EXPECT_EQ(ClipTokenizer::Load(directory).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(WriteFileAtomically(directory / "vocab.json", "{\"a\": -1}").ok());
  EXPECT_EQ(ClipTokenizer::Load(directory).status().code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(WriteFileAtomically(directory / "vocab.json", "{\"a\": 1}").ok());
  ASSERT_TRUE(WriteFileAtomically(directory / "merges.txt", "a b c\n").ok());
  EXPECT_EQ(ClipTokenizer::Load(directory).status().code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(WriteFileAtomically(directory / "merges.txt", "a b\n").ok());
  EXPECT_EQ(ClipTokenizer::Load(directory).status().code(), absl::StatusCode::kDataLoss);
}

// The wrong value is shown, and values are written by recursion.
TEST(ClipTokenizerTest, AFileThatIsNestedDeepIsDamage) {
  const auto directory = std::filesystem::path(::testing::TempDir()) / "deep_tokenizer";
  std::filesystem::create_directories(directory);
  constexpr size_t kDeep = 400'000;
  const std::string deep =
      "{\"model\": {\"type\": " + std::string(kDeep, '[') + std::string(kDeep, ']') + "}}";
  ASSERT_TRUE(WriteFileAtomically(directory / "tokenizer.json", deep).ok());
  EXPECT_EQ(ReadBpeJson(directory).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace oxbow::io
