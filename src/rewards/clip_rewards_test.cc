// SPDX-License-Identifier: Apache-2.0
// Rewards over CLIP against scores of transformers and open_clip, on every item of a directory of
// tools/make_scorer_goldens.py: OXBOW_SCORER_GOLDENS, or tests/golden/scorers.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/types/span.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/safetensors.h"
#include "rewards/aesthetic.h"
#include "rewards/clip_towers.h"
#include "rewards/clipscore.h"
#include "rewards/preference_rewards.h"

namespace oxbow::rewards {
namespace {

namespace fs = std::filesystem;
using reward::Item;
using reward::Scorer;
using ::testing::HasSubstr;

constexpr double kTolerance = 1e-5;
constexpr int kModelsMin = 6;  // One kind has so many, with other sizes, heads and activations.

fs::path Goldens() {
  const char* directory = std::getenv("OXBOW_SCORER_GOLDENS");
  return directory != nullptr ? directory : OXBOW_SOURCE_DIR "/tests/golden/scorers";
}

fs::path Head() { return Goldens() / "head.safetensors"; }

using Tensors = std::map<std::string, io::TensorBytes>;

// The golden head after a change, as a file.
fs::path HeadWith(const std::function<void(Tensors&)>& change) {
  auto content = io::ReadSafetensors(Head());
  EXPECT_TRUE(content.ok()) << content.status();
  change(content->tensors);
  const fs::path file = fs::path(::testing::TempDir()) / "changed_head.safetensors";
  EXPECT_TRUE(io::WriteSafetensors(file, *content).ok());
  return file;
}

absl::Span<float> FloatsOf(io::TensorBytes& tensor) {
  return {reinterpret_cast<float*>(tensor.data.data()), tensor.data.size() / sizeof(float)};
}

// Zeros of this shape.
io::TensorBytes FloatTensor(std::vector<int64_t> shape) {
  int64_t count = 1;
  for (const int64_t side : shape) count *= side;
  return {.dtype = io::DType::kF32,
          .shape = std::move(shape),
          .data = std::string(count * sizeof(float), '\0')};
}

std::shared_ptr<ClipTowers> Towers(const std::string& name, ClipTowersOptions options = {}) {
  auto towers = ClipTowers::Open(Goldens() / name, options);
  EXPECT_TRUE(towers.ok()) << towers.status();
  return *std::move(towers);
}

// Promise: Rewards are those of their projects. PickScore, HPSv2, CLIPScore in three conventions
// and the aesthetic predictor score within 1e-5 of transformers, open_clip and torchvision, on
// random models in the published formats. ImageReward scores within 1e-4 of a second writing of its
// network, over the checkpoint's names. GenEval's verdicts are those of both published evaluators
// on 1,000 random prompts and detections; its detector's probabilities are within 1e-4 of a second
// writing, over mmdetection's names, and its logits within 1e-4 of the largest logit. PP-OCRv5's
// networks, mobile and server, agree with transformers' float64 within 1e-4 or within three times
// the distance of its float32 from that; its boxes, the masks that decide on them, its lines and
// its texts are those of PaddleX's steps with OpenCV 4.10 and pyclipper. Resizing has Pillow's
// bytes (before version 13), the text rule of OCR is that of flow_grpo and Flow-Factory. No
// published weights were seen: their scores are not covered.
// Promise: A reward's products are those of its weights.
class ClipRewardsTest : public ::testing::Test {
 protected:
  ClipRewardsTest() {
    const auto file = io::ReadSafetensors(Goldens() / "items.safetensors");
    EXPECT_TRUE(file.ok()) << file.status();
    prompts_ = nlohmann::json::parse(file->metadata.at("prompts")).get<std::vector<std::string>>();
    for (size_t i = 0; i < prompts_.size(); ++i) {
      const io::TensorBytes& tensor = file->tensors.at("image." + std::to_string(i));
      images_.push_back({static_cast<int>(tensor.shape[1]),
                         static_cast<int>(tensor.shape[0]),
                         3,
                         {tensor.data.begin(), tensor.data.end()}});
    }
    for (size_t i = 0; i < prompts_.size(); ++i) {
      items_.push_back({.prompt = prompts_[i], .frames = {&images_[i], 1}});
    }
  }

  // Scores of all items, which are expected to have one.
  std::vector<double> ScoresOf(Scorer& scorer) const {
    std::vector<double> values;
    for (const auto& score : scorer.ScoreBatch(items_)) {
      EXPECT_TRUE(score.ok()) << score.status();
      values.push_back(score.ok() ? score->value : NAN);
    }
    return values;
  }

  // Scores of each item as `make` gives them over each model of this kind, against golden ones.
  void ExpectGolden(const std::string& kind, const std::string& reward,
                    const std::function<std::unique_ptr<Scorer>(const std::string&)>& make) const {
    const auto all = nlohmann::json::parse(*ReadFile(Goldens() / "scores.json"));
    int models = 0;
    for (const auto& [name, scores] : all.items()) {
      if (!name.starts_with(kind)) continue;
      ++models;
      ExpectScores(name, reward, *make(name), scores[reward].get<std::vector<double>>());
    }
    EXPECT_GE(models, kModelsMin) << kind;
  }

  void ExpectScores(const std::string& model, const std::string& reward, Scorer& scorer,
                    const std::vector<double>& golden) const {
    const std::vector<double> ours = ScoresOf(scorer);
    ASSERT_EQ(ours.size(), golden.size());
    double largest = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_NEAR(ours[i], golden[i], kTolerance)
          << model << " " << reward << " of " << prompts_[i];
      if (reward != "aesthetic") {  // The scores of a random head have no range.
        EXPECT_GE(ours[i], scorer.facts().value_min - kTolerance);
        EXPECT_LE(ours[i], scorer.facts().value_max + kTolerance);
      }
      largest = std::max(largest, std::abs(ours[i] - golden[i]));
    }
    std::cout << model << " " << reward << ": max difference " << largest << "\n";
  }

  std::vector<std::string> prompts_;
  std::vector<Image8> images_;
  std::vector<Item> items_;
};

TEST_F(ClipRewardsTest, PickScoreIsThatOfTransformers) {
  EXPECT_EQ(MakePickScore(Towers("clip"))->facts().name, "pickscore");
  ExpectGolden("clip", "pickscore",
               [](const std::string& model) { return MakePickScore(Towers(model)); });
}

TEST_F(ClipRewardsTest, ClipScoreIsThatOfTransformersInEachConvention) {
  for (const auto& [name, variant] :
       {std::pair("clipscore_flow_grpo", ClipScoreVariant::kFlowGrpo),
        std::pair("clipscore_flow_factory", ClipScoreVariant::kFlowFactory),
        std::pair("clipscore_hessel", ClipScoreVariant::kHessel)}) {
    ExpectGolden("clip", name, [convention = variant](const std::string& model) {
      return MakeClipScore(Towers(model), convention);
    });
  }
}

TEST_F(ClipRewardsTest, Hpsv2IsThatOfOpenClip) {
  ExpectGolden("open_clip", "hpsv2",
               [](const std::string& model) { return MakeHpsv2(Towers(model)); });
}

// Its head is what `oxbow convert-weights` makes of head.pt (python/tests/test_convert.py).
TEST_F(ClipRewardsTest, AestheticIsThatOfTransformersWithAConvertedHead) {
  const fs::path converted = Goldens() / "head.safetensors";
  ExpectGolden("clip", "aesthetic", [&](const std::string& model) {
    auto scorer = OpenAesthetic(
        Towers(model), model == "clip" ? converted : Goldens() / model / "head.safetensors");
    EXPECT_TRUE(scorer.ok()) << scorer.status();
    return *std::move(scorer);
  });
}

// The head is affine: its last layer scaled by a, and its bias by a plus b, gives a * score + b.
TEST_F(ClipRewardsTest, ScaleAndShiftOfTheLastLayerAreThoseOfTheAestheticScore) {
  const auto towers = Towers("clip");
  const std::vector<double> scores = ScoresOf(**OpenAesthetic(towers, Head()));
  for (const auto& [scale, shift] : {std::pair(2.F, 0.F), std::pair(1.F, -3.5F),
                                     std::pair(-0.75F, 1.25F), std::pair(0.F, 4.F)}) {
    const fs::path file = HeadWith([&](Tensors& tensors) {
      for (float& weight : FloatsOf(tensors.at("layers.7.weight"))) weight *= scale;
      for (float& bias : FloatsOf(tensors.at("layers.7.bias"))) bias = scale * bias + shift;
    });
    const auto moved = OpenAesthetic(towers, file);
    ASSERT_TRUE(moved.ok()) << moved.status();
    const std::vector<double> moved_scores = ScoresOf(**moved);
    for (size_t i = 0; i < scores.size(); ++i) {
      EXPECT_NEAR(moved_scores[i], scale * scores[i] + shift, kTolerance) << scale << " " << shift;
    }
  }
}

TEST_F(ClipRewardsTest, AnItemScoresTheSameAloneAndAmongOthers) {
  const auto batch = ScoresOf(*MakePickScore(Towers("clip", {.rows_max = 4})));
  const auto scorer = MakePickScore(Towers("clip"));
  for (size_t i = 0; i < items_.size(); ++i) {
    const auto alone = scorer->ScoreBatch({&items_[i], 1});
    ASSERT_TRUE(alone[0].ok()) << alone[0].status();
    EXPECT_NEAR(alone[0]->value, batch[i], kTolerance);
  }
}

TEST_F(ClipRewardsTest, RewardsOfOneModelEncodeAnImageOnce) {
  const auto towers = Towers("clip");
  const auto count = static_cast<int64_t>(items_.size());
  ScoresOf(*MakePickScore(towers));
  EXPECT_EQ(towers->images_embedded(), count);
  ScoresOf(*MakeClipScore(towers, ClipScoreVariant::kFlowFactory));
  ScoresOf(**OpenAesthetic(towers, Goldens() / "head.safetensors"));
  EXPECT_EQ(towers->images_embedded(), count);
  ScoresOf(*MakeClipScore(towers, ClipScoreVariant::kFlowGrpo));  // Another preprocessing.
  EXPECT_EQ(towers->images_embedded(), 2 * count);
}

TEST_F(ClipRewardsTest, EqualModelsAreLoadedOnceWhereverTheyAre) {
  const fs::path copy = fs::path(::testing::TempDir()) / "copy_of_clip";
  fs::remove_all(copy);
  fs::copy(Goldens() / "clip", copy);
  LoadedTowers loaded;
  const auto first = loaded.Get(Goldens() / "clip", {});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*loaded.Get(copy, {}), *first);
  EXPECT_NE(*loaded.Get(copy, {.dtype = at::kBFloat16}), *first);
  EXPECT_NE(*loaded.Get(Goldens() / "clip_1", {}), *first);
  std::string weights = *ReadFile(copy / "model.safetensors");
  weights.back() = static_cast<char>(weights.back() ^ 1);
  ASSERT_TRUE(WriteFileAtomically(copy / "model.safetensors", weights).ok());
  LoadedTowers again;
  const auto original = again.Get(Goldens() / "clip", {}), changed = again.Get(copy, {});
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_NE(*changed, *original);
}

// A group has one prompt: the text encoder sees it once, whatever the number of images and rewards.
// Promise: Batches change no score.
TEST_F(ClipRewardsTest, APromptIsEncodedOncePerGroup) {
  const auto towers = Towers("clip");
  for (Item& item : items_) item.prompt = "a red cube";
  ScoresOf(*MakePickScore(towers));
  EXPECT_EQ(towers->texts_embedded(), 1);
  ScoresOf(*MakePickScore(towers));
  ScoresOf(*MakeClipScore(towers, ClipScoreVariant::kFlowGrpo));
  EXPECT_EQ(towers->texts_embedded(), 1);
  ScoresOf(*MakeClipScore(towers, ClipScoreVariant::kHessel));  // Another text: it has a prefix.
  EXPECT_EQ(towers->texts_embedded(), 2);
}

TEST_F(ClipRewardsTest, ARankIsThePlaceOfAPickScoreInItsGroup) {
  const auto towers = Towers("clip");
  const std::vector<double> values = ScoresOf(*MakePickScore(towers));
  const auto rank = MakePickScoreRank(towers);
  EXPECT_TRUE(rank->facts().groupwise);
  const size_t half = items_.size() / 2;
  for (size_t i = 0; i < items_.size(); ++i) items_[i].group = i < half ? 7 : 9;
  const std::vector<double> ranks = ScoresOf(*rank);
  const auto expected = [&](size_t begin, size_t end) {
    return RankShares({values.begin() + static_cast<std::ptrdiff_t>(begin),
                       values.begin() + static_cast<std::ptrdiff_t>(end)});
  };
  std::vector<double> all = expected(0, half);
  for (const double share : expected(half, values.size())) all.push_back(share);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(ranks[i], all[i], kTolerance);
  items_[1].group = 0;
  const Image8 none;
  items_[0].frames = {&none, 1};
  const auto scores = rank->ScoreBatch(items_);
  EXPECT_THAT(std::string(scores[1].status().message()), HasSubstr("items of a group"));
  EXPECT_THAT(std::string(scores[0].status().message()), HasSubstr("no such image"));
  EXPECT_EQ(scores[2]->value, 0);  // Alone in what is left of its group.
}

// The published tokenizers clean: what ftfy, HTML and small letters make of a prompt has its score.
TEST_F(ClipRewardsTest, Hpsv2AndHesselsClipScoreCleanPromptsAsTheirTokenizersDo) {
  const auto golden = nlohmann::json::parse(*ReadFile(Goldens() / "cleaned_prompts.json"));
  ASSERT_GE(golden.size(), 300u);
  const auto open_clip = Towers("open_clip"), clip = Towers("clip");
  const auto hpsv2 = MakeHpsv2(open_clip), hessel = MakeClipScore(clip, ClipScoreVariant::kHessel);
  const auto cosine = [&](ClipTowers& towers, const std::string& text, ClipInput input) {
    return (towers.EmbedTexts({text}) * towers.EmbedImages({&images_[0]}, input))
        .sum()
        .item<float>();
  };
  int depicted = 0;
  for (const auto& item : golden) {
    const auto prompt = item[0].get<std::string>(), clean = item[1].get<std::string>();
    EXPECT_EQ(ScoreOne(*hpsv2, prompt, "", images_[0])->value,
              cosine(*open_clip, clean, ClipInput::kBicubicPadded))
        << item.dump(-1, ' ', /*ensure_ascii=*/true);
    const double value = 2.5 * cosine(*clip, "a photo depicts " + clean, ClipInput::kProcessor);
    EXPECT_EQ(ScoreOne(*hessel, prompt, "", images_[0])->value, std::max(value, 0.0)) << prompt;
    depicted += value > 0 ? 1 : 0;
  }
  EXPECT_GT(depicted, 50) << "scores above the floor";
}

TEST_F(ClipRewardsTest, Hpsv2ReadsEntitiesTwiceAndPickScoreDoesNot) {
  const auto of = [&](Scorer& scorer, const std::string& prompt) {
    return ScoreOne(scorer, prompt, "", images_[0])->value;
  };
  const auto hpsv2 = MakeHpsv2(Towers("open_clip"));
  EXPECT_EQ(of(*hpsv2, "salt &amp;amp; &#112;epper"), of(*hpsv2, "Salt & pepper"));
  EXPECT_NE(of(*hpsv2, "salt &amp;amp;amp; pepper"), of(*hpsv2, "salt & pepper"));
  const auto pickscore = MakePickScore(Towers("clip"));
  EXPECT_NE(of(*pickscore, "salt &amp; pepper"), of(*pickscore, "salt & pepper"));
}

// With room for two embeddings scores stay the same, and each pass comes again.
TEST_F(ClipRewardsTest, WhatIsNotKeptIsComputedAgain) {
  const auto few = Towers("clip", {.kept_max = 2}), many = Towers("clip");
  const auto count = static_cast<int64_t>(items_.size());
  const auto first = ScoresOf(*MakePickScore(few)), again = ScoresOf(*MakePickScore(few));
  EXPECT_EQ(first, again);
  EXPECT_EQ(first, ScoresOf(*MakePickScore(many)));
  EXPECT_GT(few->images_embedded(), count);
}

TEST_F(ClipRewardsTest, ABadImageCostsOnlyItsOwnScore) {
  const auto scorer = MakePickScore(Towers("clip"));
  const std::vector<double> sound = ScoresOf(*scorer);
  const Image8 short_of_bytes{10, 10, 3, {1, 2, 3}}, four{2, 2, 4, std::vector<uint8_t>(16)},
      strip{1, 30000, 1, std::vector<uint8_t>(30000)}, none;
  std::vector<Item> items = items_;
  for (const Image8* const bad : {&short_of_bytes, &four, &strip, &none}) {
    items[2].frames = {bad, 1};
    const auto scores = scorer->ScoreBatch(items);
    EXPECT_EQ(scores[2].status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(scores[2].status().message()), HasSubstr("CLIP takes no such image"));
    for (size_t i = 0; i < items.size(); ++i) {
      if (i == 2) continue;
      EXPECT_NEAR(scores[i]->value, sound[i], kTolerance);
    }
  }
}

TEST_F(ClipRewardsTest, GreyIsTheSameAsThreeEqualChannels) {
  const auto scorer = MakeHpsv2(Towers("open_clip"));
  Image8 grey{20, 30, 1, {}}, rgb{20, 30, 3, {}};
  for (int i = 0; i < 600; ++i) {
    grey.pixels.push_back(static_cast<uint8_t>(i * 7));
    rgb.pixels.insert(rgb.pixels.end(), 3, static_cast<uint8_t>(i * 7));
  }
  EXPECT_EQ(ScoreOne(*scorer, "x", "", grey)->value, ScoreOne(*scorer, "x", "", rgb)->value);
}

TEST_F(ClipRewardsTest, IdentitiesTellModelsVariantsAndTypesApart) {
  const auto clip = Towers("clip");
  std::set<std::string> identities = {
      MakePickScore(clip)->facts().identity, MakePickScore(Towers("open_clip"))->facts().identity,
      MakePickScore(Towers("clip", {.dtype = at::kBFloat16}))->facts().identity,
      MakeClipScore(clip, ClipScoreVariant::kHessel)->facts().identity,
      MakeClipScore(clip, ClipScoreVariant::kFlowGrpo)->facts().identity};
  EXPECT_EQ(identities.size(), 5u);
  EXPECT_EQ(clip->identity(), Towers("clip")->identity());
}

// bfloat16 keeps 8 bits; scores move by a few per cent of the scale at most.
TEST_F(ClipRewardsTest, HalfTypesScoreNearly) {
  const auto exact = ScoresOf(*MakeHpsv2(Towers("open_clip")));
  for (const auto& [dtype, tolerance] :
       {std::pair(at::kBFloat16, 0.03), std::pair(at::kHalf, 0.004)}) {
    const auto rough = ScoresOf(*MakeHpsv2(Towers("open_clip", {.dtype = dtype})));
    for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(rough[i], exact[i], tolerance);
  }
}

TEST_F(ClipRewardsTest, DefectsOfAModelAreNamed) {
  EXPECT_EQ(ClipTowers::Open(Goldens() / "absent").status().code(), absl::StatusCode::kNotFound);
  const fs::path broken = fs::path(::testing::TempDir()) / "broken_clip";
  fs::remove_all(broken);
  fs::copy(Goldens() / "clip", broken);
  const auto refused = [&](const std::string& config) {
    EXPECT_TRUE(WriteFileAtomically(broken / "config.json", config).ok());
    const absl::Status status = ClipTowers::Open(broken).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("broken_clip"));
    return std::string(status.message());
  };
  EXPECT_THAT(refused("{}"), HasSubstr("no text_config"));
  auto config = nlohmann::json::parse(*ReadFile(Goldens() / "clip" / "config.json"));
  config["vision_config"]["patch_size"] = 14;
  EXPECT_THAT(refused(config.dump()), HasSubstr("wrong shape: vision_model.embeddings."));
  config["text_config"]["vocab_size"] = 9;
  EXPECT_THAT(refused(config.dump()), HasSubstr("embeds 9"));
  EXPECT_THAT(
      std::string(
          OpenAesthetic(Towers("clip"), Goldens() / "items.safetensors").status().message()),
      HasSubstr("not a tensor of an aesthetic head: image.0"));
}

TEST_F(ClipRewardsTest, AHeadOfTheWrongWidthIsNamed) {
  const auto towers = Towers("clip");
  const auto refused = [&](const std::function<void(Tensors&)>& change) {
    const absl::Status status = OpenAesthetic(towers, HeadWith(change)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("changed_head.safetensors: "));
    return std::string(status.message());
  };
  EXPECT_THAT(refused([](Tensors& head) {
                head["layers.0.weight"] = FloatTensor({16, 768});
              }),
              HasSubstr("layer 0 does not take " + std::to_string(towers->width()) + " numbers"));
  EXPECT_THAT(refused([](Tensors& head) {
                head["layers.4.weight"] = FloatTensor({6, 9});
              }),
              HasSubstr("layer 4 does not take 8 numbers"));
  EXPECT_THAT(refused([](Tensors& head) { head["layers.2.bias"] = FloatTensor({7}); }),
              HasSubstr("layer 2 does not take 16 numbers"));
  EXPECT_THAT(refused([](Tensors& head) { head.erase("layers.2.bias"); }),
              HasSubstr("layer 2 does not take 16 numbers"));
  EXPECT_THAT(refused([](Tensors& head) {
                head["layers.7.weight"] = FloatTensor({2, 4});
                head["layers.7.bias"] = FloatTensor({2});
              }),
              HasSubstr("the last layer gives 2 numbers instead of one"));
  EXPECT_THAT(refused([](Tensors& head) { head.clear(); }), HasSubstr("the last layer gives"));
}

}  // namespace
}  // namespace oxbow::rewards
