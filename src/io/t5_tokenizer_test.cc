// SPDX-License-Identifier: Apache-2.0
// Ids against transformers' are in tests/golden/text_golden_test.cc; here: files that are wrong,
// and texts from nowhere.
#include "io/t5_tokenizer.h"

#include <algorithm>
#include <random>

#include "base/file.h"
#include "gtest/gtest.h"
#include "io/clip_tokenizer.h"
#include "io/tokenizer_files.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;

fs::path Pipeline() { return OXBOW_SOURCE_DIR "/tests/golden/text/pipeline"; }

std::string PieceOf(const std::string& text, float score) {
  std::string piece = "\x0a" + std::string(1, static_cast<char>(text.size())) + text + "\x15";
  piece.append(reinterpret_cast<const char*>(&score), 4);
  return "\x0a" + std::string(1, static_cast<char>(piece.size())) + piece;
}

fs::path Fresh(const std::string& name) {
  const fs::path directory = fs::path(::testing::TempDir()) / name;
  fs::remove_all(directory);
  fs::create_directories(directory);
  return directory;
}

absl::Status Loaded(const fs::path& directory, const std::string& model) {
  EXPECT_TRUE(WriteFileAtomically(directory / "spiece.model", model).ok());
  return T5Tokenizer::Load(directory).status();
}

const std::string kSmall = PieceOf("<pad>", 0) + PieceOf("</s>", 0) + PieceOf("<unk>", 0) +
                           PieceOf("\xe2\x96\x81", -2) + PieceOf("a", -3) + PieceOf("b", -3) +
                           PieceOf("ab", -5) +
                           PieceOf(
                               "\xe2\x96\x81"
                               "a",
                               -4);

// By hand: "▁ab" is ▁a + b (-7), ▁ + ab (-7) or ▁ + a + b (-8); of equals the one found first wins.
TEST(T5TokenizerTest, TheLikeliestPiecesWin) {
  const fs::path directory = Fresh("t5_small");
  ASSERT_TRUE(Loaded(directory, kSmall).ok());
  const auto tokenizer = T5Tokenizer::Load(directory);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  using Ids = std::vector<int64_t>;
  EXPECT_EQ(tokenizer->Encode("a b", 6), (Ids{7, 3, 5, 1, 0, 0}));
  EXPECT_EQ(tokenizer->Encode("xyab", 6), (Ids{3, 2, 6, 1, 0, 0}));  // One unknown for two letters.
  EXPECT_EQ(tokenizer->Encode("a a a a a", 3), (Ids{7, 7, 1}));
  EXPECT_EQ(tokenizer->Encode("a</s>b", 6), (Ids{7, 1, 3, 5, 1, 0}));
  EXPECT_EQ(tokenizer->Encode("<extra_id_0><extra_id_99>", 4), (Ids{107, 8, 1, 0}));
  EXPECT_EQ(tokenizer->Encode("", 1), (Ids{1}));
  EXPECT_EQ(tokenizer->size(), 108);
}

TEST(T5TokenizerTest, WrongFilesAreNamed) {
  const fs::path directory = Fresh("t5_wrong");
  const auto missing = T5Tokenizer::Load(directory).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("spiece.model"), std::string::npos) << missing;
  EXPECT_EQ(Loaded(directory, "").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Loaded(directory, "version https://git-lfs").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Loaded(directory, kSmall.substr(0, kSmall.size() - 2)).code(),
            absl::StatusCode::kDataLoss);
  const auto bpe = Loaded(directory, kSmall + std::string("\x12\x02\x18\x02"));
  EXPECT_EQ(bpe.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(bpe.message().find("unigram"), std::string::npos) << bpe;
  EXPECT_EQ(Loaded(directory, kSmall + std::string("\x1a\x04\x12\x02zz")).code(),
            absl::StatusCode::kDataLoss);
  ASSERT_TRUE(Loaded(directory, kSmall).ok());
  ASSERT_TRUE(
      WriteFileAtomically(directory / "tokenizer_config.json", R"({"eos_token": "<end>"})").ok());
  const auto status = T5Tokenizer::Load(directory).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("<end>"), std::string::npos) << status;
}

// Random damage to a real model must end in an error or in ids, never in a crash.
TEST(T5TokenizerTest, DamagedModelsAreRefusedOrHarmless) {
  const std::string model = *ReadFile(Pipeline() / "tokenizer_3/spiece.model");
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const fs::path directory = Fresh("t5_damaged");
  int loaded = 0;
  for (int i = 0; i < 60; ++i) {
    std::string damaged = model;
    for (int k = 0; k < 1 + i % 8; ++k) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    if (i % 5 == 0) damaged.resize(random() % damaged.size());
    if (!Loaded(directory, damaged).ok()) continue;
    ++loaded;
    const auto tokenizer = T5Tokenizer::Load(directory);
    for (const char* text : {"caf\xc3\xa9 \xef\xac\x81 \xe3\x81\x8b\xe3\x82\x99", "a b c"}) {
      EXPECT_EQ(tokenizer->Encode(text, 20).size(), 20u);
    }
  }
  EXPECT_GT(loaded, 0);
}

// Any bytes at all, for both tokenizers: as many ids as asked for, all of them in the vocabulary,
// and the same again.
TEST(T5TokenizerTest, AnyBytesGetIdsOfTheVocabulary) {
  const auto t5 = T5Tokenizer::Load(Pipeline() / "tokenizer_3");
  const auto clip = ClipTokenizer::Load(Pipeline() / "tokenizer_2");
  ASSERT_TRUE(t5.ok() && clip.ok()) << t5.status() << clip.status();
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (size_t k = random() % 60; k > 0; --k) {
      text += static_cast<char>(random() % (i % 2 == 0 ? 256 : 128));
    }
    const std::vector<int64_t> pieces = t5->Encode(text, 40), pairs = clip->Encode(text, 40);
    ASSERT_EQ(pieces.size(), 40u);
    ASSERT_EQ(pairs.size(), 40u);
    ASSERT_EQ(pieces, t5->Encode(text, 40));
    ASSERT_LT(*std::max_element(pieces.begin(), pieces.end()), t5->size());
    ASSERT_LT(*std::max_element(pairs.begin(), pairs.end()), clip->size());
    ASSERT_GE(*std::min_element(pieces.begin(), pieces.end()), 0);
  }
}

// A word of a megabyte must not take a time that grows with its square.
TEST(T5TokenizerTest, OneEndlessWordIsCutLikeAnyOther) {
  const auto t5 = T5Tokenizer::Load(Pipeline() / "tokenizer_3");
  const auto clip = ClipTokenizer::Load(Pipeline() / "tokenizer");
  ASSERT_TRUE(t5.ok() && clip.ok());
  const std::string word(1 << 20, 'a');
  EXPECT_EQ(t5->Encode(word, 8).back(), t5->end_id());
  EXPECT_EQ(clip->Encode(word, 8).back(), clip->end_id());
}

TEST(T5TokenizerTest, TheSmallTokenizerHasTheExpectedIds) {
  const auto tokenizer = T5Tokenizer::Load(OXBOW_SOURCE_DIR "/models/digits_flux/tokenizer_2");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->size(), 24);
  EXPECT_EQ(tokenizer->Encode("text 473", 7), (std::vector<int64_t>{23, 17, 10, 6, 1, 0, 0}));
  EXPECT_EQ(tokenizer->Encode("text 4a", 5), (std::vector<int64_t>{23, 17, 2, 1, 0}));
}

}  // namespace
}  // namespace oxbow::io
