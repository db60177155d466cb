// SPDX-License-Identifier: Apache-2.0
// Answers of servers: right ones, and every way to be wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rewards/remote_server.h"

namespace oxbow::rewards {
namespace {

using ::testing::HasSubstr;

std::string Said(const absl::Status& status) { return std::string(status.message()); }

// Promise: Servers and judges of others make no score up. Over HTTP, what is not a finite number
// (HTML, a redirect, null, NaN, a cut or huge answer, a judge without a score) is an error of its
// image with its kind. All tries end within one deadline, so that a server that hangs costs it
// once. An observed judge that misbehaves changes nothing but its own numbers. A reward server that
// stops ends what it asked.
TEST(RemoteAnswerTest, EveryItemHasItsNumberOrAnErrorOfItsOwn) {
  const auto scores =
      RewardsOfAnswer(R"({"rewards": [0.5, null, -2, "3", NaN, 1e3, -Infinity, true]})", 8);
  ASSERT_TRUE(scores.ok()) << scores.status();
  for (const size_t i : {0, 2, 5}) ASSERT_TRUE((*scores)[i].ok()) << i;
  EXPECT_EQ((*scores)[0]->value, .5);
  EXPECT_EQ((*scores)[2]->value, -2);
  EXPECT_EQ((*scores)[5]->value, 1000);
  for (const size_t i : {1, 3, 4, 6, 7}) {
    EXPECT_EQ((*scores)[i].status().code(), absl::StatusCode::kDataLoss) << i;
  }
}

TEST(RemoteAnswerTest, TextMayNameNumbersThatAreNone) {
  const auto scores = RewardsOfAnswer(R"({"note": "NaN, \"Infinity", "rewards": [1]})", 1);
  ASSERT_TRUE(scores.ok()) << scores.status();
  EXPECT_EQ((*scores)[0]->value, 1);
}

TEST(RemoteAnswerTest, WhatIsNoListOfThatLengthScoresNothing) {
  for (const char* answer :
       {"", "nonsense", "[1]", "{}", R"({"rewards": 1})", R"({"rewards": [1, 2]})",
        R"({"rewards": []})", R"({"rewards": [1])", R"({"rewards": [1e999]})",
        R"({"rewards": [1]} and more)", "{\"rewards\": [1]}\x80"}) {
    EXPECT_EQ(RewardsOfAnswer(answer, 1).status().code(), absl::StatusCode::kDataLoss) << answer;
  }
  EXPECT_THAT(Said(RewardsOfAnswer("\n<!DOCTYPE html><html>", 1).status()),
              HasSubstr("an HTML page"));
  EXPECT_THAT(Said(RewardsOfAnswer(R"({"rewards": [1, 2]})", 3).status()),
              HasSubstr("2 rewards for 3 items"));
  const absl::Status error = RewardsOfAnswer(R"({"rewards": [1], "error": "no GPU"})", 1).status();
  EXPECT_EQ(error.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Said(error), HasSubstr("no GPU"));
}

TEST(RemoteAnswerTest, DepthIsBounded) {
  const std::string deep(1 << 20, '[');
  EXPECT_EQ(RewardsOfAnswer("{\"rewards\": " + deep, 1).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReadChatAnswer(deep).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReasonOf(deep)[0], '[') << "as text";
}

TEST(RemoteAnswerTest, AChatHasWordsAndTheCandidatesOfItsFirstToken) {
  const auto chat =
      ReadChatAnswer(R"({"choices": [{"message": {"content": "Yes."}, "logprobs": {"content": [
      {"top_logprobs": [{"token": "Yes", "logprob": -0.1}, {"token": "No", "logprob": -3},
                        {"token": 3, "logprob": -4}, {"token": "x", "logprob": null}, 5]},
      {"top_logprobs": [{"token": "No", "logprob": 0}]}]}}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->text, "Yes.");
  EXPECT_EQ(chat->first_token, (std::map<std::string, double>{{"Yes", -.1}, {"No", -3}}));
  const auto bare =
      ReadChatAnswer(R"({"choices": [{"message": {"content": null}, "logprobs": null}]})");
  ASSERT_TRUE(bare.ok()) << bare.status();
  EXPECT_EQ(bare->text, "");
  for (const char* answer :
       {"{}", R"({"choices": []})", R"({"choices": [3]})", R"({"choices": {"a": 1}})"}) {
    EXPECT_EQ(ReadChatAnswer(answer).status().code(), absl::StatusCode::kDataLoss) << answer;
  }
}

TEST(RemoteAnswerTest, AReasonHasManyShapes) {
  EXPECT_EQ(ReasonOf(R"({"detail": "no such model"})"), "no such model");
  EXPECT_EQ(ReasonOf(R"({"error": {"message": "too long", "code": 400}})"), "too long");
  EXPECT_EQ(ReasonOf(R"({"detail": [{"loc": 1}]})"), R"([{\"loc\":1}])");
  EXPECT_EQ(ReasonOf("  plain\n"), "plain");
  EXPECT_EQ(ReasonOf("a\x01 b"), "a\\x01 b");
}

}  // namespace
}  // namespace oxbow::rewards
