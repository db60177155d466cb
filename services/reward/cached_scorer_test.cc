// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/reward/scorer_panel.h"
#include "tests/testing/scripted_http_server.h"

namespace oxbow::reward {
namespace {

using ::testing::ElementsAre;
using testing::HttpText;
using testing::ScriptedHttpServer;

// A pure function of the item, which counts what it is asked. Prompts "no" are errors.
class CountingScorer final : public Scorer {
 public:
  explicit CountingScorer(std::vector<size_t>& batches) : batches_(batches) {}
  const RewardFacts& facts() const override { return facts_; }
  int concurrency_max() const override { return 3; }
  std::vector<absl::StatusOr<Score>> ScoreBatch(absl::Span<const Item> items) override {
    batches_.push_back(items.size());
    std::vector<absl::StatusOr<Score>> scores;
    for (const Item& item : items) {
      if (item.prompt == "no") {
        scores.emplace_back(absl::InternalError("no"));
        continue;
      }
      double value = 100. * static_cast<double>(item.prompt.size()) +
                     10. * static_cast<double>(item.metadata_json.size()) + item.picture().width;
      // Reads every fourth frame.
      for (size_t i = 0; i < item.frames.size(); ++i) {
        if (i * item.frames_every % 4 == 0) value = 7 * value + item.frames[i].pixels[0];
      }
      scores.emplace_back(Score{.value = value, .note = std::string(item.prompt)});
    }
    return scores;
  }

 private:
  std::vector<size_t>& batches_;
  const RewardFacts facts_{.name = "counts", .identity = "counts/1", .videos = true};
};

// Promise: A cache changes no score. A kept score is given again for the same media, prompt and
// metadata alone, and for frames that are the same share of a video. Errors are not kept.
class CachedScorerTest : public ::testing::Test {
 protected:
  std::unique_ptr<CachedScorer> Cached(size_t items_max) {
    return std::make_unique<CachedScorer>(std::make_unique<CountingScorer>(batches_), items_max);
  }
  std::vector<size_t> batches_;
};

Image8 Pixel(uint8_t level) { return {.width = 1, .height = 1, .pixels = {level}}; }

TEST_F(CachedScorerTest, ScoresAreThoseOfTheScorerWhateverIsKept) {
  std::vector<size_t> ignored;
  CountingScorer plain(ignored);
  const std::vector<std::string> prompts = {"a", "bb", "no"};
  const std::vector<std::string> metadata = {"", "{}"};
  const Image8 wide{.width = 2, .height = 1, .pixels = {1, 0}};
  const Image8 tall{.width = 1, .height = 2, .pixels = {1, 0}};
  const std::vector<std::vector<Image8>> media = {
      {Pixel(1)}, {Pixel(2)}, {wide}, {tall}, {Pixel(1), Pixel(2)}, {Pixel(2), Pixel(1)}};
  for (const size_t items_max : {1, 4, 100}) {
    const auto cached = Cached(items_max);
    std::mt19937 random(17);
    for (int round = 0; round < 200; ++round) {
      std::vector<Item> items;
      for (size_t i = 0; i < 1 + random() % 5; ++i) {
        items.push_back({.prompt = prompts[random() % 3],
                         .metadata_json = metadata[random() % 2],
                         .frames = media[random() % media.size()],
                         .frames_every = random() % 2 == 0 ? 1U : 4U});
      }
      const auto expected = plain.ScoreBatch(items);
      const auto scores = cached->ScoreBatch(items);
      ASSERT_EQ(scores.size(), items.size());
      for (size_t i = 0; i < items.size(); ++i) {
        ASSERT_EQ(scores[i].status(), expected[i].status());
        if (!scores[i].ok()) continue;
        EXPECT_EQ(scores[i]->value, expected[i]->value);
        EXPECT_EQ(scores[i]->note, expected[i]->note);
      }
    }
  }
}

TEST_F(CachedScorerTest, AnEqualItemIsScoredOnceAndAnErrorEachTime) {
  const auto cached = Cached(10);
  const Image8 image = Pixel(3);
  const Item good{.prompt = "a", .frames = {&image, 1}}, bad{.prompt = "no", .frames = {&image, 1}};
  const auto first = cached->ScoreBatch(std::vector{good, bad, good});
  EXPECT_THAT(batches_, ElementsAre(2));
  EXPECT_FALSE(first[0]->cached);
  const auto second = cached->ScoreBatch(std::vector{good, bad, good});
  EXPECT_THAT(batches_, ElementsAre(2, 1));
  EXPECT_TRUE(second[0]->cached);
  EXPECT_FALSE(second[1].ok());
  (void)cached->ScoreBatch(std::vector{good});
  EXPECT_THAT(batches_, ElementsAre(2, 1)) << "nothing to ask";
}

TEST_F(CachedScorerTest, WhatWasNotAskedForTheLongestGoesFirst) {
  const auto cached = Cached(2);
  const auto is_kept = [&](uint8_t level) {
    const Image8 image = Pixel(level);
    return cached->ScoreBatch(std::vector<Item>{{.prompt = "a", .frames = {&image, 1}}})[0]->cached;
  };
  EXPECT_FALSE(is_kept(1));
  EXPECT_FALSE(is_kept(2));
  EXPECT_TRUE(is_kept(1));
  EXPECT_FALSE(is_kept(3));  // In place of 2.
  EXPECT_TRUE(is_kept(1));
  EXPECT_FALSE(is_kept(2));
}

// Promise: A cache changes no score.
TEST(ScorerPanelTest, AnEntryMayHaveItsResultsKept) {
  v1::ScorerConfig entry;
  entry.set_name("digits_ocr");
  entry.set_cache_items(5);
  const auto panel = ScorerPanel::Create({entry});
  ASSERT_TRUE(panel.ok()) << panel.status();
  EXPECT_NE(dynamic_cast<CachedScorer*>(panel->scorers()[0].get()), nullptr);
  EXPECT_EQ(panel->scorers()[0]->facts().identity, "digits_ocr/1");
  entry.clear_cache_items();
  EXPECT_EQ(dynamic_cast<CachedScorer*>(ScorerPanel::Create({entry})->scorers()[0].get()), nullptr);
}

// Answers with the number of the request, or with an error to the prompt "no".
v1::ScorerConfig EntryAt(const ScriptedHttpServer& server, const std::string& kind) {
  v1::ScorerConfig entry;
  entry.set_name("far");
  entry.set_kind(kind);
  entry.set_url(server.url());
  if (kind == "vlm") {
    entry.set_variant("unifiedreward");
    entry.set_llm("judge");
  }
  return entry;
}

std::string AnswerOf(const std::string& kind, int number) {
  if (kind == "json") return absl::StrCat(R"({"rewards": [)", number, "]}");
  return absl::StrCat(R"({"choices": [{"message": {"content": "Final Score: )", number, R"("}}]})");
}

TEST(ScorerPanelTest, WhatServersOfOthersSaidIsKeptAndWhatTheyDidNotSayIsAskedAgain) {
  for (const std::string kind : {"json", "vlm"}) {
    std::atomic<int> requests = 0;
    ScriptedHttpServer server([&](const ScriptedHttpServer::Request& request) {
      const int number = ++requests;
      if (absl::StrContains(request.body, "nothing")) return HttpText(500, "{}");
      return HttpText(200, AnswerOf(kind, number));
    });
    const auto panel = ScorerPanel::Create({EntryAt(server, kind)});
    ASSERT_TRUE(panel.ok()) << panel.status();
    const Image8 image = Pixel(3);
    const auto ask = [&](std::string_view prompt) {
      return ScoreItems(*panel->scorers()[0],
                        std::vector<Item>{{.prompt = prompt, .frames = {&image, 1}}})[0];
    };
    const auto first = ask("a cat"), again = ask("a cat");
    ASSERT_TRUE(first.ok() && again.ok()) << first.status() << again.status();
    EXPECT_EQ(again->value, first->value) << kind;
    EXPECT_EQ(again->note, first->note) << kind;
    EXPECT_TRUE(again->cached) << kind;
    EXPECT_EQ(requests, 1) << kind;
    EXPECT_FALSE(ask("nothing").ok());
    EXPECT_FALSE(ask("nothing").ok());
    EXPECT_EQ(requests, 3) << kind;
  }
}

TEST(ScorerPanelTest, AServerThatComparesAGroupIsAskedEachTime) {
  ScriptedHttpServer server([](const auto&) { return HttpText(200, R"({"rewards": [1]})"); });
  v1::ScorerConfig entry = EntryAt(server, "json");
  entry.set_variant("groupwise");
  const auto panel = ScorerPanel::Create({entry});
  ASSERT_TRUE(panel.ok()) << panel.status();
  const Image8 image = Pixel(3);
  const std::vector<Item> items = {{.prompt = "a", .frames = {&image, 1}, .group = 1}};
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(ScoreItems(*panel->scorers()[0], items)[0].ok());
  EXPECT_EQ(server.requests().size(), 2u);
}

}  // namespace
}  // namespace oxbow::reward
