// SPDX-License-Identifier: Apache-2.0
// Judges over the OpenAI chat protocol: what they are asked, how answers become scores, and what a
// judge that misbehaves costs.
#include "rewards/judge_scorer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "io/image.h"
#include "tests/testing/scripted_http_server.h"

namespace oxbow::rewards {
namespace {

using nlohmann::json;
using reward::Item;
using ::testing::HasSubstr;
using testing::HttpText;
using ::testing::Not;
using testing::ScriptedHttpServer;
using ::testing::SizeIs;
using Request = ScriptedHttpServer::Request;

const Image8 kPicture{
    .width = 4, .height = 2, .channels = 3, .pixels = std::vector<uint8_t>(24, 90)};

std::string Words(const std::string& text) {
  return HttpText(200, json{{"choices", {{{"message", {{"content", text}}}}}}}.dump());
}

std::string Tokens(const json& candidates) {
  const json content = {{{"top_logprobs", candidates}}};
  return HttpText(
      200,
      json{{"choices", {{{"message", {{"content", "Yes"}}}, {"logprobs", {{"content", content}}}}}}}
          .dump());
}

JudgeSettings SettingsOf(const ScriptedHttpServer& server, const std::string& preset) {
  return {
      .name = preset, .preset = preset, .llm = "judge-7b", .server = {.url = server.url() + "/v1"}};
}

absl::StatusOr<reward::Score> ScoreOf(const std::string& preset, const std::string& answer) {
  ScriptedHttpServer server([&](const Request&) { return answer; });
  return reward::ScoreOne(*MakeJudge(SettingsOf(server, preset)).value(), "a cat", "", kPicture);
}

TEST(JudgeScorerTest, UnifiedRewardIsAskedAsFlowGrpoAsks) {
  ScriptedHttpServer server([](const Request&) { return Words("Fine.\nFinal Score: 4.5"); });
  JudgeSettings settings = SettingsOf(server, "unifiedreward");
  settings.server.key = "sesame";
  const auto score =
      reward::ScoreOne(*MakeJudge(settings).value(), "two {prompt} cats", "", kPicture);
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->value, .9);
  EXPECT_EQ(score->note, "Fine. Final Score: 4.5");
  const Request request = server.requests().front();
  EXPECT_THAT(request.head, HasSubstr("POST /v1/chat/completions HTTP/1.1"));
  EXPECT_THAT(request.head, HasSubstr("Authorization: Bearer sesame"));
  const json asked = json::parse(request.body);
  EXPECT_EQ(asked["model"], "judge-7b");
  EXPECT_EQ(asked["temperature"], 0);
  EXPECT_FALSE(asked.contains("max_completion_tokens"));
  const json& content = asked["messages"][0]["content"];
  const std::string text = content[1]["text"];
  EXPECT_THAT(text, ::testing::StartsWith("<image>\nYou are given a text caption"));
  EXPECT_THAT(text, ::testing::EndsWith("after 'Final Score:'.\nYour task is provided as "
                                        "follows:\nText Caption: [two {prompt} cats]"));
  const std::string url = content[0]["image_url"]["url"];
  std::string png;
  ASSERT_TRUE(absl::Base64Unescape(absl::StripPrefix(url, "data:image/png;base64,"), &png));
  const Image8 sent = io::DecodePng(png).value();
  EXPECT_EQ(sent.width, 512);
  EXPECT_EQ(sent.height, 512);
}

TEST(JudgeScorerTest, AScoreIsReadAsFlowGrpoReadsIt) {
  const auto value = [](const std::string& text) {
    const auto score = JudgeScore(JudgePreset::kUnifiedReward, {.text = text, .first_token = {}});
    return score.ok() ? score->value * 5 : -1;
  };
  EXPECT_DOUBLE_EQ(value("Final Score: 3"), 3);
  EXPECT_DOUBLE_EQ(value("Final Score:\n\t2.25 of 5"), 2.25);
  EXPECT_DOUBLE_EQ(value("Final Score: 4."), 4);
  EXPECT_DOUBLE_EQ(value("Final Score: none. Final Score: 1"), 1);
  EXPECT_DOUBLE_EQ(value("Final Score: 2 ... Final Score: 5"), 2);
  EXPECT_DOUBLE_EQ(value("Final Score: 10"), 1);  // The pattern has no word boundary.
  for (const char* text :
       {"", "4.5", "final score: 4", "Final Score: 0.5", "Final Score: 9", "Final Score:"}) {
    EXPECT_EQ(value(text), -1) << text;
  }
}

TEST(JudgeScorerTest, YesNoIsTheShareOfYes) {
  const auto both = ScoreOf("yes_no", Tokens({{{"token", "Yes"}, {"logprob", std::log(.6)}},
                                              {{"token", "No"}, {"logprob", std::log(.2)}},
                                              {{"token", "yes"}, {"logprob", std::log(.1)}}}));
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_NEAR(both->value, .75, 1e-12);
  EXPECT_EQ(ScoreOf("yes_no", Tokens({{{"token", "No"}, {"logprob", -.1}}})).value().value, 0);
  EXPECT_EQ(ScoreOf("yes_no", Tokens({{{"token", "Yes"}, {"logprob", -9}}})).value().value, 1);
  const auto neither = ScoreOf("yes_no", Tokens({{{"token", "Maybe"}, {"logprob", -.1}}}));
  EXPECT_EQ(neither.status().code(), absl::StatusCode::kDataLoss) << neither.status();
  EXPECT_EQ(ScoreOf("yes_no", Words("Yes")).status().code(), absl::StatusCode::kDataLoss);
}

TEST(JudgeScorerTest, YesNoTakesAQuestionOfOnesOwn) {
  ScriptedHttpServer server([](const Request&) {
    return Tokens({{{"token", "Yes"}, {"logprob", 0}}});
  });
  JudgeSettings settings = SettingsOf(server, "yes_no");
  const std::string usual = MakeJudge(settings).value()->facts().identity;
  settings.question = "Does it show {prompt}?";
  const auto judge = MakeJudge(settings).value();
  EXPECT_NE(judge->facts().identity, usual);
  ASSERT_TRUE(reward::ScoreOne(*judge, "a cat", "", kPicture).ok());
  const json asked = json::parse(server.requests().front().body);
  EXPECT_EQ(asked["messages"][0]["content"][1]["text"], "Does it show a cat?");
  EXPECT_EQ(asked["max_completion_tokens"], 1);
  EXPECT_EQ(asked["top_logprobs"], 20);
  EXPECT_EQ(asked["logprobs"], true);
  settings.preset = "unifiedreward";
  EXPECT_FALSE(MakeJudge(settings).ok()) << "its question is the one that it was trained with";
  settings.preset = "taste";
  EXPECT_FALSE(MakeJudge(settings).ok());
}

TEST(JudgeScorerTest, TheIdentityHasModelAndPresetAndNeitherAddressNorKey) {
  JudgeSettings settings{.name = "j",
                         .preset = "yes_no",
                         .llm = "m",
                         .server = {.url = "http://a/v1", .key = "sesame"}};
  const std::string identity = MakeJudge(settings).value()->facts().identity;
  EXPECT_EQ(identity, "vlm/1 yes_no m");
}

// Promise: A judge's key stays a secret.
TEST(JudgeScorerTest, AnAnswerWithoutAScoreIsAnErrorThatHasTheJudgesWordsAndNoKey) {
  ScriptedHttpServer server([](const Request&) { return Words("I cannot rate sesame."); });
  JudgeSettings settings = SettingsOf(server, "unifiedreward");
  settings.server.key = "sesame";
  const auto score = reward::ScoreOne(*MakeJudge(settings).value(), "a", "", kPicture);
  EXPECT_EQ(score.status().code(), absl::StatusCode::kDataLoss) << score.status();
  EXPECT_THAT(std::string(score.status().message()), HasSubstr("I cannot rate KEY."));
  EXPECT_THAT(std::string(score.status().message()), Not(HasSubstr("sesame")));
}

TEST(JudgeScorerTest, SoManyRequestsAtATimeAndNoMore) {
  constexpr int kLimit = 3;
  absl::Mutex mutex;
  int now = 0, most = 0;
  ScriptedHttpServer server([&](const Request&) {
    absl::MutexLock lock(&mutex);
    most = std::max(most, ++now);
    // Waits for company; the last requests have none.
    const auto full = [&] { return now >= kLimit; };
    mutex.AwaitWithTimeout(absl::Condition(&full), absl::Milliseconds(20));
    --now;
    return Words("Final Score: 5");
  });
  JudgeSettings settings = SettingsOf(server, "unifiedreward");
  settings.concurrency = kLimit;
  const auto judge = MakeJudge(settings).value();
  const std::vector<Item> items(8, {.prompt = "a", .frames = {&kPicture, 1}});
  std::vector<std::vector<absl::StatusOr<reward::Score>>> results(2);
  {
    std::jthread other([&] { results[0] = judge->ScoreBatch(items); });
    results[1] = judge->ScoreBatch(items);
  }
  for (const auto& scores : results) {
    for (const auto& score : scores) EXPECT_TRUE(score.ok()) << score.status();
  }
  EXPECT_LE(most, kLimit);
  EXPECT_THAT(server.requests(), SizeIs(16));
}

// Promise: Servers and judges of others make no score up.
TEST(JudgeScorerTest, AHungJudgeCostsABatchItsDeadlineOnce) {
  ScriptedHttpServer server([](const Request&) { return std::nullopt; });
  JudgeSettings settings = SettingsOf(server, "unifiedreward");
  settings.concurrency = 2;
  settings.time_max = absl::Milliseconds(300);
  const auto judge = MakeJudge(settings).value();
  const std::vector<Item> items(10, {.prompt = "a", .frames = {&kPicture, 1}});
  const absl::Duration start = Clock::Steady().Now();
  for (const auto& score : judge->ScoreBatch(items)) {
    EXPECT_EQ(score.status().code(), absl::StatusCode::kDeadlineExceeded) << score.status();
  }
  // Far from the five deadlines of items that are asked about one after the other, even when busy.
  EXPECT_GE(Clock::Steady().Now() - start, settings.time_max);
  EXPECT_THAT(server.requests(), SizeIs(::testing::Le(2)));
}

}  // namespace
}  // namespace oxbow::rewards
