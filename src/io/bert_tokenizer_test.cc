// SPDX-License-Identifier: Apache-2.0
// Ids against transformers' BertTokenizer, from files of tools/make_imagereward_goldens.py.
#include "io/bert_tokenizer.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int64_t>;

fs::path Goldens() {
  const char* directory = std::getenv("OXBOW_SCORER_GOLDENS");
  return fs::path(directory != nullptr ? directory : OXBOW_SOURCE_DIR "/tests/golden/scorers") /
         "imagereward";
}

// A tokenizer of this vocabulary.
absl::StatusOr<BertTokenizer> Of(const std::string& vocabulary,
                                 const std::vector<std::string>& added = {}) {
  const fs::path directory = fs::path(::testing::TempDir()) / "bert_tokenizer";
  fs::create_directories(directory);
  EXPECT_TRUE(WriteFileAtomically(directory / "vocab.txt", vocabulary).ok());
  return BertTokenizer::Load(directory, added);
}

// Promise: Rewards are those of their projects.
TEST(BertTokenizerTest, AwkwardPromptsGetTheIdsOfTransformers) {
  const auto golden = nlohmann::json::parse(*ReadFile(Goldens() / "tokens.json"));
  const auto tokenizer =
      BertTokenizer::Load(Goldens() / "0", golden["added"].get<std::vector<std::string>>());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  ASSERT_GT(golden["cases"].size(), 100u);
  for (const auto& item : golden["cases"]) {
    const auto prompt = item["prompt"].get<std::string>();
    EXPECT_EQ(tokenizer->Encode(prompt, golden["length"].get<int64_t>()), item["ids"].get<Ids>())
        << prompt;
  }
}

TEST(BertTokenizerTest, TheLongestPieceFromTheLeftCounts) {
  const auto tokenizer =
      Of("[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\n##aff\n##able\n##a\nunaff\r\n##x\n", {"[DEC]", "[SEP]"});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->size(), 11);
  EXPECT_EQ(tokenizer->Encode("Unaffable un", 9), (Ids{2, 8, 6, 4, 3}));
  EXPECT_EQ(tokenizer->Encode("unaf [DEC]", 9), (Ids{2, 1, 10, 3}));  // No pieces: not one is kept.
  EXPECT_EQ(tokenizer->Encode("un un un un", 4), (Ids{2, 4, 4, 3}));
  EXPECT_EQ(tokenizer->Encode("\xff\xfe", 2), (Ids{2, 3}));
  EXPECT_EQ(tokenizer->pad_id(), 0);
}

TEST(BertTokenizerTest, AFileWithoutSpecialTokensIsNamed) {
  EXPECT_EQ(BertTokenizer::Load(fs::path(::testing::TempDir()) / "nowhere").status().code(),
            absl::StatusCode::kNotFound);
  for (const char* vocabulary : {"", "[PAD]\n[UNK]\n[CLS]\n", "\n\n"}) {
    const absl::Status status = Of(vocabulary).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("vocab.txt"));
  }
}

}  // namespace
}  // namespace oxbow::io
