// SPDX-License-Identifier: Apache-2.0
#include "tasks/compose.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tasks/compose_reading.h"
#include "tasks/pretraining_batch.h"
#include "tasks/synthetic_task.h"

namespace oxbow::tasks {
namespace {

const Object kRedSquare{0, 0};
const Object kBlueDisc{2, 1};
const Object kBlueSquare{2, 0};
const Scene kScene{kRedSquare, Relation::kLeftOf, kBlueDisc};

std::vector<uint8_t> PixelsOf(const Arrangement& cells, float brightness = 1) {
  const auto image = RenderArrangement(cells);
  std::vector<uint8_t> pixels(image.size());
  for (int i = 0; i < kComposePixels; ++i) {
    for (int channel = 0; channel < kComposeChannels; ++channel) {
      const bool bright = image[channel * kComposePixels + i] > 0;
      pixels[i * kComposeChannels + channel] = static_cast<uint8_t>(bright ? 255 * brightness : 0);
    }
  }
  return pixels;
}

SceneCredit Credit(const Arrangement& cells) {
  return CreditOf(ReadCompose(PixelsOf(cells)), kScene);
}

TEST(ComposeTest, ShapesDifferInManyPixels) {
  for (int a = 0; a < kShapeCount; ++a) {
    for (int b = 0; b < a; ++b) {
      int different = 0;
      for (int i = 0; i < kCellSide * kCellSide; ++i) {
        different += ShapeCovers(a, i / kCellSide, i % kCellSide) !=
                             ShapeCovers(b, i / kCellSide, i % kCellSide)
                         ? 1
                         : 0;
      }
      EXPECT_GE(different, 12) << a << " and " << b;
    }
  }
}

TEST(ComposeTest, PromptOfEverySceneRoundTripsAndNoTwoAreAlike) {
  std::set<std::string> prompts;
  for (const Scene& scene : AllScenes()) {
    const std::string prompt = ScenePrompt(scene);
    const absl::StatusOr<Scene> parsed = ParseScenePrompt(prompt);
    ASSERT_TRUE(parsed.ok()) << prompt;
    ASSERT_TRUE(*parsed == scene) << prompt;
    prompts.insert(prompt);
  }
  EXPECT_EQ(prompts.size(), 960u);
  EXPECT_EQ(ScenePrompt(kScene), "red square left of blue disc");
}

TEST(ComposeTest, OtherTextIsNoPrompt) {
  for (const char* text :
       {"", "red square", "red square left blue disc", "red square left of blue",
        "red square above red square", "Red square above blue disc", "text 473",
        "red  square above blue disc", "red square above blue disc ", "red square above of disc"}) {
    EXPECT_EQ(ParseScenePrompt(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

// For every relation, place and pair of objects the reader inverts the renderer.
TEST(ComposeTest, EveryRightImageIsReadAsRight) {
  for (const Scene& scene : AllScenes()) {
    const auto places = PlacesOf(scene.relation);
    for (size_t i = 0; i < places.size(); ++i) {
      Arrangement cells;
      cells[places[i].first] = scene.first;
      cells[places[i].second] = scene.second;
      const ComposeReading reading = ReadCompose(PixelsOf(cells));
      ASSERT_TRUE(CreditOf(reading, scene).strict()) << ScenePrompt(scene) << " at " << i;
      ASSERT_EQ(PlaceTaken(reading, scene), static_cast<int>(i));
    }
  }
}

TEST(ComposeTest, CreditIsPartial) {
  EXPECT_DOUBLE_EQ(Credit({kRedSquare, kBlueDisc, {}, {}}).reward(), 1);
  EXPECT_DOUBLE_EQ(Credit({kRedSquare, {}, {}, kBlueDisc}).reward(), 1) << "rows are free";
  EXPECT_DOUBLE_EQ(Credit({kBlueDisc, kRedSquare, {}, {}}).reward(), 0.75) << "mirrored";
  EXPECT_DOUBLE_EQ(Credit({kRedSquare, {}, kBlueDisc, {}}).reward(), 0.75) << "one above the other";
  EXPECT_DOUBLE_EQ(Credit({kRedSquare, kBlueSquare, {}, {}}).reward(), 0.625) << "one shape wrong";
  EXPECT_DOUBLE_EQ(Credit({kRedSquare, kBlueDisc, kBlueDisc, {}}).reward(), 0.75) << "one too many";
  EXPECT_DOUBLE_EQ(Credit({kRedSquare, {}, {}, {}}).reward(), 0.25) << "half of two parts";
  EXPECT_DOUBLE_EQ(Credit({}).reward(), 0);
  // Colours and shapes are present, but on the wrong objects.
  EXPECT_DOUBLE_EQ(Credit({Object{2, 0}, Object{0, 1}, {}, {}}).reward(), 0.75);
}

TEST(ComposeTest, WhatIsHalfDrawnIsSomethingButNoObject) {
  const ComposeReading reading = ReadCompose(PixelsOf({kRedSquare, {}, {}, {}}, 0.5F));
  EXPECT_FALSE(reading[0].dark);
  EXPECT_FALSE(reading[0].object.has_value());
  EXPECT_TRUE(reading[1].dark);
}

TEST(ComposeTest, ReportCountsPartsPlacesAndDust) {
  ComposeCounter counter;
  EXPECT_EQ(counter.Report().reward, 0);
  for (const auto& [first, second] : PlacesOf(kScene.relation)) {
    Arrangement cells;
    cells[first] = kRedSquare;
    cells[second] = kBlueDisc;
    counter.Add(kScene, PixelsOf(cells));
  }
  EXPECT_DOUBLE_EQ(counter.Report().place_balance, 1);
  EXPECT_DOUBLE_EQ(counter.Report().strict, 1);
  EXPECT_DOUBLE_EQ(counter.Report().speckle, 0);
  for (int i = 0; i < 4; ++i) counter.Add(kScene, PixelsOf({kRedSquare, kBlueDisc, {}, {}}));
  counter.Add(kScene, PixelsOf({}));
  const ComposeReport report = counter.Report();
  EXPECT_EQ(report.images, 9);
  EXPECT_DOUBLE_EQ(report.place_balance, 0.5) << "one of eight, times four";
  EXPECT_DOUBLE_EQ(report.reward, 8.0 / 9);
  EXPECT_DOUBLE_EQ(report.count, 8.0 / 9);
}

// The tokenizer's rule, written independently: lowest rank first, until nothing merges.
TEST(ComposeTest, MergesMakeEveryWordOneToken) {
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (const std::string& merge : ComposeMerges()) {
    const std::vector<std::string> parts = absl::StrSplit(merge, ' ');
    ranks.emplace(std::pair(parts[0], parts[1]), ranks.size());
  }
  EXPECT_EQ(ranks.size(), ComposeMerges().size()) << "a merge repeats";
  for (const std::string& word : ComposeWords()) {
    std::vector<std::string> symbols;
    for (const char letter : word) symbols.emplace_back(1, letter);
    symbols.back() += "</w>";
    while (true) {
      size_t best = ranks.size();
      size_t where = 0;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto rank = ranks.find({symbols[i], symbols[i + 1]});
        if (rank != ranks.end() && rank->second < best) best = rank->second, where = i;
      }
      if (best == ranks.size()) break;
      symbols[where] += symbols[where + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(where) + 1);
    }
    EXPECT_EQ(symbols.size(), 1u) << word;
  }
}

TEST(ComposeTest, CaptionsLieAsOftenAsTheyShould) {
  const BatchOptions options{.seed = 7, .size = 20000, .caption_noise = 0.5};
  int first_right = 0;
  int relation_right = 0;
  std::array<int, kCellCount> used = {};
  for (const ComposeExample& example : ComposeBatch(options, 0, {kScene})) {
    std::vector<int> cells;
    for (int cell = 0; cell < kCellCount; ++cell) {
      if (example.drawn[cell]) cells.push_back(cell), ++used[cell];
    }
    ASSERT_EQ(cells.size(), 2u);
    ASSERT_TRUE(example.time > 0 && example.time < 1);
    relation_right += RelationHolds(Relation::kLeftOf, cells[0], cells[1]) ||
                      RelationHolds(Relation::kLeftOf, cells[1], cells[0]);
    first_right += example.drawn[cells[0]] == kRedSquare || example.drawn[cells[1]] == kRedSquare;
  }
  // Red and square each stay with 1/2 + 1/2 * 1/4; or the second object equals it by chance.
  const double one = 0.625 * 0.625;
  const double other = 0.125 * 0.125;
  EXPECT_NEAR(first_right / 20000.0, one + other - one * other, 0.012);
  // Side by side: left, right (5/8 and 1/8), or a diagonal of above and below (half of 2/8).
  EXPECT_NEAR(relation_right / 20000.0, 0.75 + 0.25 / 2, 0.012);
  for (const int count : used) EXPECT_NEAR(count / 20000.0, 0.5, 0.012);
}

TEST(SyntheticTaskTest, PromptsFindTheirTask) {
  EXPECT_EQ(TaskOfPrompt("text 473")->name(), "digits");
  EXPECT_EQ(TaskOfPrompt("red square above blue disc")->name(), "compose");
  EXPECT_EQ(TaskOfPrompt("a cat"), nullptr);
  EXPECT_FALSE(TaskNamed("cats").ok());
  const SyntheticTask& task = **TaskNamed("compose");
  const auto pixels = PixelsOf({kRedSquare, kBlueDisc, {}, {}});
  EXPECT_TRUE(task.IsRight("red square left of blue disc", pixels).value());
  EXPECT_FALSE(task.IsRight("red square above blue disc", pixels).value());
  EXPECT_EQ(task.IsRight("text 473", pixels).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(task.IsRight("red square above blue disc", {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace oxbow::tasks
