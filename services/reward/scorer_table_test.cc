// SPDX-License-Identifier: Apache-2.0
#include "services/reward/scorer_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "examples/worlds/digits.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::reward {
namespace {

Image8 ImageOf(int number) {
  Image8 image{.width = 20, .height = 8, .channels = 1, .pixels = {}};
  for (const float x : worlds::RenderDigits(worlds::DigitsOf(number), 1)) {
    image.pixels.push_back(x > 0 ? 255 : 0);
  }
  return image;
}

// Rewards of any picture, whatever the prompt.
const std::set<std::string>& OfAnyPicture() {
  static const auto& names =
      *new std::set<std::string>{"jpeg_size", "brightness", "edge_density", "colour_entropy"};
  return names;
}

TEST(ScorerTableTest, WhatDoesNotFitIsAnErrorAndNoScore) {
  for (const std::string& name : PlainScorerNames()) {
    const auto scorer = MakeScorer(name);
    ASSERT_TRUE(scorer.ok());
    EXPECT_EQ((*scorer)->facts().name, name);
    const auto code = [&](const char* prompt, const Image8& image) {
      return ScoreOne(**scorer, prompt, "{}", image).status().code();
    };
    Image8 transposed = ImageOf(1);
    std::swap(transposed.width, transposed.height);
    if (OfAnyPicture().contains(name)) {
      EXPECT_EQ(code("a red cube", transposed), absl::StatusCode::kOk);
    } else {
      EXPECT_EQ(code("a red cube", ImageOf(1)), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(code("text 001", transposed), absl::StatusCode::kInvalidArgument);
    }
    Image8 truncated = ImageOf(1);
    truncated.pixels.pop_back();
    EXPECT_EQ(code("text 001", truncated), absl::StatusCode::kInvalidArgument);
  }
}

// Promise: Batches change no score.
TEST(ScorerTableTest, ABatchHasTheScoresOfItsItemsAlone) {
  const std::vector<Image8> images = {ImageOf(1), ImageOf(473), ImageOf(470)};
  std::vector<Item> items;
  for (const char* prompt : {"text 473", "a red cube", "red square left of blue disc"}) {
    for (const Image8& image : images) items.push_back({.prompt = prompt, .frames = {&image, 1}});
  }
  for (const std::string& name : PlainScorerNames()) {
    const auto scorer = MakeScorer(name).value();
    const auto scores = scorer->ScoreBatch(items);
    ASSERT_EQ(scores.size(), items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      const auto alone = ScoreOne(*scorer, items[i].prompt, "", items[i].picture());
      EXPECT_EQ(scores[i].status(), alone.status());
      EXPECT_TRUE(!alone.ok() || scores[i]->value == alone->value) << name;
    }
  }
}

TEST(ScorerTableTest, AnEntrySaysWhatIsWrongWithIt) {
  v1::ScorerConfig config;
  config.set_name("digits_ocr");
  EXPECT_TRUE(CheckScorer(config).ok());
  config.set_model("models/digits");
  EXPECT_EQ(CheckScorer(config).message(), "reward digits_ocr takes no key `model`; it takes none");
  config.clear_model();
  config.set_name("ocr");
  config.set_scorer("digits_ocr");
  EXPECT_EQ(CheckScorer(config).message(), "reward digits_ocr has no other name, got ocr");
  config.set_scorer("digits_orc");
  EXPECT_NE(CheckScorer(config).message().find("did you mean `digits_ocr`?"), std::string::npos);
}

TEST(ScorerTableTest, AServerOfOthersIsAnEntryWithItsKind) {
  v1::ScorerConfig config;
  config.set_name("style");
  config.set_kind("json");
  EXPECT_EQ(CheckScorer(config).message(), "reward style needs the key `url`");
  config.set_url("http://10.0.0.5:8000");
  const auto style = MakeScorer(config);
  ASSERT_TRUE(style.ok()) << style.status();
  EXPECT_EQ((*style)->facts().name, "style");
  EXPECT_FALSE((*style)->facts().groupwise);
  config.set_variant("groupwise");
  EXPECT_TRUE(MakeScorer(config).value()->facts().groupwise);
  config.set_variant("pairwise");
  EXPECT_EQ(CheckScorer(config).message(),
            "reward style: variant is pointwise or groupwise, got pairwise");
  config.clear_variant();
  config.set_timeout_seconds(-1);
  EXPECT_NE(CheckScorer(config).message().find("timeout_seconds is in 0..3600"), std::string::npos);
  config.clear_timeout_seconds();
  config.set_url("http://me:secret@host");
  EXPECT_EQ(CheckScorer(config).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckScorer(config).message().find("secret"), std::string::npos);
  config.set_kind("jsn");
  EXPECT_NE(CheckScorer(config).message().find("did you mean `json`?"), std::string::npos);
}

TEST(ScorerTableTest, AJudgeIsAnEntryWithPresetModelAndKey) {
  v1::ScorerConfig config;
  config.set_name("unifiedreward");  // The name is the preset, unless the entry has a variant.
  config.set_kind("vlm");
  config.set_url("http://judge:17140/v1");
  EXPECT_EQ(CheckScorer(config).message(), "reward unifiedreward needs the key `llm`");
  config.set_llm("UnifiedReward-7b-v1.5");
  EXPECT_EQ(MakeScorer(config).value()->facts().identity,
            "vlm/1 unifiedreward UnifiedReward-7b-v1.5");
  config.set_name("taste");
  EXPECT_EQ(CheckScorer(config).message(),
            "reward taste: a judge's `variant` is unifiedreward or yes_no, got taste");
  config.set_variant("yes_no");
  EXPECT_TRUE(CheckScorer(config).ok()) << CheckScorer(config);
  config.set_key_file("/nowhere/key");
  EXPECT_TRUE(absl::IsNotFound(CheckScorer(config))) << CheckScorer(config);
}

TEST(ScorerTableTest, OcrNamesItsEngine) {
  v1::ScorerConfig config;
  config.set_name("ocr");
  config.set_engine("tesseract");
  EXPECT_TRUE(CheckScorer(config).ok()) << CheckScorer(config);
  config.set_engine("paddle");
  EXPECT_THAT(std::string(CheckScorer(config).message()),
              ::testing::HasSubstr("reward ocr: engine is "));
  config.set_engine("tesseract");
  config.set_confidence_min(0.5);
  EXPECT_EQ(CheckScorer(config).message(),
            "reward ocr: engine tesseract takes no key `confidence_min`");
}

TEST(ScorerTableTest, TesseractTakesItsSettingsFromTheEntry) {
  v1::ScorerConfig config;
  config.set_name("ocr");
  const std::string usual = MakeScorer(config).value()->facts().identity;
  EXPECT_THAT(usual, ::testing::HasSubstr("page_mode=0 scale=0 margin=-1"));
  config.set_engine("tesseract");
  config.set_deadline_seconds(2.5);
  EXPECT_EQ(MakeScorer(config).value()->facts().identity, usual);
  config.set_page_mode(6);
  config.set_scale(2);
  config.set_margin(0);
  EXPECT_THAT(MakeScorer(config).value()->facts().identity,
              ::testing::HasSubstr("page_mode=6 scale=2 margin=0"));
  const auto refused = [](void (*change)(v1::ScorerConfig&)) {
    v1::ScorerConfig bad;
    bad.set_name("ocr");
    change(bad);
    return std::string(CheckScorer(bad).message());
  };
  EXPECT_EQ(refused([](v1::ScorerConfig& c) { c.set_page_mode(5); }),
            "reward ocr: page_mode is none of 0, 3, 4, 6, 7, 8, 11, 13: 5");
  EXPECT_THAT(refused([](v1::ScorerConfig& c) { c.set_scale(9); }),
              ::testing::HasSubstr("reward ocr: scale is not 0 to 8"));
  EXPECT_THAT(refused([](v1::ScorerConfig& c) { c.set_margin(~0U); }),
              ::testing::HasSubstr("margin not -1 to 256"));
  EXPECT_THAT(refused([](v1::ScorerConfig& c) { c.set_deadline_seconds(-1); }),
              ::testing::HasSubstr("reward ocr: deadline is not 1 ms to 24 h"));
}

#ifdef OXBOW_HAS_MODEL_REWARDS
TEST(ScorerTableTest, PpocrIsAnEngineWithADirectory) {
  v1::ScorerConfig config;
  config.set_name("ocr");
  config.set_engine("ppocr");
  EXPECT_EQ(CheckScorer(config).message(), "reward ocr: engine ppocr needs the key `model`");
  config.set_model(OXBOW_SOURCE_DIR "/tests/golden/scorers/ppocr/mobile/0");
  config.set_margin(3);
  EXPECT_EQ(CheckScorer(config).message(), "reward ocr: engine ppocr takes no key `margin`");
  config.clear_margin();
  config.set_confidence_min(2);
  EXPECT_EQ(CheckScorer(config).message(), "reward ocr: confidence_min is 0 to 1, got 2");
  config.set_confidence_min(0.25);
  const auto scorer = MakeScorer(config);
  ASSERT_TRUE(scorer.ok()) << scorer.status();
  EXPECT_THAT((*scorer)->facts().identity, ::testing::HasSubstr("ocr/1 flow_grpo ppocr/1 det "));
  EXPECT_THAT((*scorer)->facts().help, ::testing::HasSubstr("PP-OCR"));
  config.set_model(OXBOW_SOURCE_DIR "/tests/golden/scorers/clip");
  const absl::Status other = MakeScorer(config).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(other.message()), ::testing::HasSubstr("reward ocr: "));
  EXPECT_THAT(std::string(other.message()), ::testing::HasSubstr("clip/det/config.json"));
}

TEST(ScorerTableTest, AModelIsARewardFromAnEntryAndGivesOneScoreUnderAnyName) {
  const std::string goldens = OXBOW_SOURCE_DIR "/tests/golden/scorers";
  v1::ScorerConfig config;
  config.set_name("pickscore");
  EXPECT_EQ(CheckScorer(config).message(),
            "reward pickscore needs the key `model`; the id yuvalkirstain/PickScore_v1 is the "
            "published one (docs/rewards.md)");
  config.set_model(goldens + "/clip");
  const auto pickscore = MakeScorer(config);
  ASSERT_TRUE(pickscore.ok()) << pickscore.status();
  config.set_name("taste");
  config.set_scorer("pickscore");
  const auto taste = MakeScorer(config);
  ASSERT_TRUE(taste.ok()) << taste.status();
  EXPECT_EQ((*taste)->facts().name, "taste");
  EXPECT_EQ((*taste)->facts().identity, (*pickscore)->facts().identity);
  Image8 image{.width = 40, .height = 30, .channels = 3, .pixels = {}};
  for (int i = 0; i < 40 * 30 * 3; ++i) image.pixels.push_back(static_cast<uint8_t>(i * 37));
  const auto one = ScoreOne(**pickscore, "a red cube", "", image);
  const auto other = ScoreOne(**taste, "a red cube", "", image);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->value, other->value);
  config.set_variant("official");
  EXPECT_EQ(CheckScorer(config).message(),
            "reward taste takes no key `variant`; it takes model, device, dtype, tokenizer");
  config.set_scorer("clipscore");
  EXPECT_EQ(CheckScorer(config).message(),
            "reward taste: variant is flow_grpo, flow_factory or hessel, got official");
  config.clear_variant();
  config.set_scorer("aesthetic");
  config.set_head(goldens + "/none.safetensors");
  EXPECT_TRUE(absl::IsNotFound(CheckScorer(config))) << CheckScorer(config);
  config.set_head(goldens + "/head.safetensors");
  EXPECT_TRUE(MakeScorer(config).ok()) << MakeScorer(config).status();
  config.set_model(goldens);  // No model is in this directory.
  EXPECT_FALSE(MakeScorer(config).ok());
}

// A CLIP model as some are published: the tokenizer is in another repository.
// Promise: One command gets all that a run names by ids of the Hub.
TEST(ScorerTableTest, AModelWithoutATokenizerTakesTheNamedOneOrThePublishedOneOfTheHub) {
  namespace fs = std::filesystem;
  const fs::path golden = OXBOW_SOURCE_DIR "/tests/golden/scorers/clip";
  const testing::ScopedDirectory scratch;
  const fs::path model = scratch.path() / "hub/models--yuvalkirstain--PickScore_v1/snapshots/main";
  const fs::path tokenizer =
      scratch.path() / "hub/models--laion--CLIP-ViT-H-14-laion2B-s32B-b79K/snapshots/main";
  fs::create_directories(model);
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::copy(golden / file, model / file);
  }
  setenv("HF_HUB_CACHE", (scratch.path() / "hub").c_str(), 1);
  v1::ScorerConfig config;
  config.set_name("pickscore");
  config.set_model("yuvalkirstain/PickScore_v1");
  const absl::Status without = CheckScorer(config);
  EXPECT_TRUE(absl::IsNotFound(without)) << without;
  EXPECT_THAT(std::string(without.message()),
              ::testing::HasSubstr("`hf download laion/CLIP-ViT-H-14-laion2B-s32B-b79K "
                                   "tokenizer.json tokenizer_config.json vocab.json merges.txt"));
  v1::ScorerConfig whole = config;
  whole.set_model(golden.string());
  const std::string identity = MakeScorer(whole).value()->facts().identity;

  v1::ScorerConfig named = config;
  named.set_tokenizer(golden.string());
  const auto with_named = MakeScorer(named);
  ASSERT_TRUE(with_named.ok()) << with_named.status();
  EXPECT_EQ((*with_named)->facts().identity, identity);

  v1::ScorerConfig other = config;
  other.set_scorer("clipscore");
  EXPECT_THAT(std::string(MakeScorer(other).status().message()),
              ::testing::HasSubstr("with the key `tokenizer`"));

  fs::create_directories(tokenizer);
  for (const auto& file : fs::directory_iterator(golden)) {
    if (!fs::exists(model / file.path().filename())) {
      fs::copy(file.path(), tokenizer / file.path().filename());
    }
  }
  const auto published = MakeScorer(config);
  unsetenv("HF_HUB_CACHE");
  ASSERT_TRUE(published.ok()) << published.status();
  EXPECT_EQ((*published)->facts().identity, identity);
}

TEST(ScorerTableTest, GenevalNeedsADetectorAndAClip) {
  v1::ScorerConfig config;
  config.set_name("geneval");
  EXPECT_THAT(std::string(CheckScorer(config).message()),
              ::testing::StartsWith("reward geneval needs the key `model`; "));
  config.set_model(OXBOW_SOURCE_DIR "/tests/golden/scorers/geneval/0");
  EXPECT_THAT(std::string(CheckScorer(config).message()),
              ::testing::StartsWith("reward geneval needs the key `head`; "));
  config.set_head(OXBOW_SOURCE_DIR "/tests/golden/scorers/none");
  EXPECT_TRUE(absl::IsNotFound(CheckScorer(config))) << CheckScorer(config);
  config.set_head(OXBOW_SOURCE_DIR "/tests/golden/scorers/clip");
  config.set_variant("hessel");
  EXPECT_EQ(CheckScorer(config).message(),
            "reward geneval: variant is official or flow_grpo, got hessel");
  config.clear_variant();
  EXPECT_TRUE(CheckScorer(config).ok()) << CheckScorer(config);
  EXPECT_TRUE(MakeScorer(config).ok()) << MakeScorer(config).status();
  config.set_model(OXBOW_SOURCE_DIR "/tests/golden/scorers/clip");  // No detector.
  const std::string message(MakeScorer(config).status().message());
  EXPECT_EQ(message.find("reward geneval: "), 0u) << message;
  EXPECT_NE(message.find("scorers/clip"), std::string::npos) << message;
}

TEST(ScorerTableTest, ANetworkIsARewardFromAnEntry) {
  v1::ScorerConfig config;
  config.set_name("imagereward");
  EXPECT_THAT(std::string(CheckScorer(config).message()),
              ::testing::StartsWith("reward imagereward needs the key `model`; "));
  config.set_model(OXBOW_SOURCE_DIR "/tests/golden/scorers/imagereward/0");
  config.set_dtype("f64");
  EXPECT_EQ(CheckScorer(config).message(),
            "reward imagereward: dtype is f32, bf16 or f16, got f64");
  config.clear_dtype();
  const auto scorer = MakeScorer(config);
  ASSERT_TRUE(scorer.ok()) << scorer.status();
  const Image8 image{.width = 2, .height = 2, .channels = 1, .pixels = {0, 90, 180, 255}};
  const auto score = ScoreOne(**scorer, "a red cube", "", image);
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_GT(score->value, -10);
  config.set_model(OXBOW_SOURCE_DIR "/tests/golden/scorers/clip");
  const std::string message(MakeScorer(config).status().message());
  EXPECT_EQ(message.find("reward imagereward: "), 0u) << message;
  EXPECT_NE(message.find("vocab.txt"), std::string::npos) << message;
}
#endif

// Promise: A run keeps its rewards.
TEST(ScorerTableTest, EveryScorerHasAnIdentityOfItsOwn) {
  std::set<std::string> identities;
  for (const std::string& name : PlainScorerNames()) {
    const std::string identity = MakeScorer(name).value()->facts().identity;
    EXPECT_FALSE(identity.empty()) << name;
    EXPECT_TRUE(identities.insert(identity).second) << identity;
  }
}

TEST(ScorerTableTest, UnknownScorerNamesTheKnownOnes) {
  const absl::Status status = MakeScorer("digits_orc").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("digits_ocr, digits_strict"), std::string::npos);
  EXPECT_NE(status.message().find("digits_orc"), std::string::npos);
}

}  // namespace
}  // namespace oxbow::reward
