// SPDX-License-Identifier: Apache-2.0
// The client of Flow-Factory's protocol, against a server that a test writes.
#include "rewards/json_scorer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/escaping.h"
#include "io/image.h"
#include "tests/testing/scripted_http_server.h"

namespace oxbow::rewards {
namespace {

using nlohmann::json;
using reward::Item;
using ::testing::HasSubstr;
using testing::HttpText;
using testing::ScriptedHttpServer;
using ::testing::SizeIs;
using Request = ScriptedHttpServer::Request;

Image8 Grey(uint8_t value) {
  return {.width = 3, .height = 2, .channels = 1, .pixels = std::vector<uint8_t>(6, value)};
}

Image8 Decoded(const json& png64) {
  std::string png;
  EXPECT_TRUE(absl::Base64Unescape(png64.get<std::string>(), &png));
  return io::DecodePng(png).value();
}

// The first pixel of every picture, or of the first frame of every video.
std::string FirstPixels(const Request& request) {
  const json asked = json::parse(request.body);
  json rewards = json::array();
  for (const json& png : asked["image"]) rewards.push_back(Decoded(png).pixels[0]);
  for (const json& frames : asked["video"]) rewards.push_back(Decoded(frames[0]).pixels[0]);
  return HttpText(200, json{{"rewards", rewards}}.dump());
}

std::unique_ptr<reward::Scorer> ScorerOf(const ScriptedHttpServer& server, bool groupwise = false) {
  return MakeJsonScorer({.name = "style", .groupwise = groupwise, .server = {.url = server.url()}})
      .value();
}

TEST(JsonScorerTest, SendsFlowFactorysRequestAndReadsItsAnswer) {
  ScriptedHttpServer server(FirstPixels);
  const auto scorer = ScorerOf(server);
  const std::vector<Image8> pictures = {Grey(7), Grey(200)};
  const auto scores = scorer->ScoreBatch(std::vector<Item>{
      {.prompt = "a \"cat\"\xff", .frames = {&pictures[0], 1}},
      {.prompt = "a dog", .metadata_json = R"({"tag": "counting"})", .frames = {&pictures[1], 1}}});
  ASSERT_THAT(scores, SizeIs(2));
  EXPECT_EQ(scores[0].value().value, 7);
  EXPECT_EQ(scores[1].value().value, 200);
  ASSERT_THAT(server.requests(), SizeIs(1));
  EXPECT_THAT(server.requests()[0].head, HasSubstr("POST /compute HTTP/1.1"));
  const json asked = json::parse(server.requests()[0].body);
  EXPECT_EQ(asked["prompt"], json({"a \"cat\"\xef\xbf\xbd", "a dog"}));
  EXPECT_EQ(Decoded(asked["image"][1]), pictures[1]);
  EXPECT_EQ(asked["extra"], json::array({nullptr, {{"tag", "counting"}}}));
  for (const char* key : {"video", "condition_images", "condition_videos"}) {
    EXPECT_TRUE(asked[key].is_null()) << key;
  }
}

TEST(JsonScorerTest, PicturesAndVideosTravelInRequestsOfTheirOwn) {
  ScriptedHttpServer server(FirstPixels);
  const auto scorer = ScorerOf(server);
  const std::vector<Image8> frames = {Grey(1), Grey(2), Grey(3)};
  const auto scores =
      scorer->ScoreBatch(std::vector<Item>{{.prompt = "a", .frames = frames},
                                           {.prompt = "b", .frames = {&frames[2], 1}},
                                           {.prompt = "c", .frames = {&frames[1], 2}}});
  EXPECT_EQ(scores[0].value().value, 1);
  EXPECT_EQ(scores[1].value().value, 3);
  EXPECT_EQ(scores[2].value().value, 2);
  ASSERT_THAT(server.requests(), SizeIs(2));
  for (const Request& request : server.requests()) {
    const json asked = json::parse(request.body);
    EXPECT_NE(asked["image"].is_null(), asked["video"].is_null());
    EXPECT_EQ(asked["prompt"].size(), asked[asked["image"].is_null() ? "video" : "image"].size());
    EXPECT_TRUE(asked["extra"].is_null());
  }
}

TEST(JsonScorerTest, AGroupwiseServerGetsEachGroupAlone) {
  ScriptedHttpServer server(FirstPixels);
  const auto scorer = ScorerOf(server, /*groupwise=*/true);
  EXPECT_TRUE(scorer->facts().groupwise);
  const std::vector<Image8> pictures = {Grey(1), Grey(2), Grey(3), Grey(4)};
  std::vector<Item> items;
  for (size_t i = 0; i < 4; ++i)
    items.push_back({.prompt = "a", .frames = {&pictures[i], 1}, .group = 5 + i % 2});
  const auto scores = scorer->ScoreBatch(items);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(scores[i].value().value, i + 1.);
  EXPECT_THAT(server.requests(), SizeIs(2));
}

// Promise: Servers and judges of others make no score up.
TEST(JsonScorerTest, WhatGoesWrongIsTheErrorOfItsItemsAndNoScore) {
  const Image8 picture = Grey(9);
  const std::vector<Item> items(2, {.prompt = "a", .frames = {&picture, 1}});
  const auto codes = [&](const std::string& answer) {
    ScriptedHttpServer server([&](const Request&) { return answer; });
    std::vector<absl::StatusCode> codes;
    for (const auto& score : ScorerOf(server)->ScoreBatch(items))
      codes.push_back(score.status().code());
    return codes;
  };
  using Codes = std::vector<absl::StatusCode>;
  constexpr auto kLost = absl::StatusCode::kDataLoss;
  EXPECT_EQ(codes(HttpText(200, R"({"rewards": [1, NaN]})")),
            Codes({absl::StatusCode::kOk, kLost}));
  EXPECT_EQ(codes(HttpText(200, R"({"rewards": [1]})")), Codes({kLost, kLost}));
  EXPECT_EQ(codes(HttpText(200, "<html>", "Content-Type: text/html\r\n")), Codes({kLost, kLost}));
  EXPECT_EQ(codes(HttpText(200, std::string(2 << 20, ' '))), Codes({kLost, kLost}));
  EXPECT_EQ(codes(HttpText(500, R"({"detail": "CUDA out of memory"})")),
            Codes(2, absl::StatusCode::kInternal));
  EXPECT_EQ(codes(HttpText(307, "", "Location: http://x/\r\n")),
            Codes(2, absl::StatusCode::kNotFound));
}

TEST(JsonScorerTest, TheIdentityNamesNoAddress) {
  const auto identity = [](const std::string& url, const std::string& model, bool groupwise) {
    return MakeJsonScorer(
               {.name = "style", .model = model, .groupwise = groupwise, .server = {.url = url}})
        .value()
        ->facts()
        .identity;
  };
  EXPECT_EQ(identity("http://a:1", "", false), identity("http://b:2", "", false));
  EXPECT_NE(identity("http://a:1", "v2", false), identity("http://a:1", "", false));
  EXPECT_NE(identity("http://a:1", "", true), identity("http://a:1", "", false));
  EXPECT_FALSE(MakeJsonScorer({.name = "style", .server = {.url = "a:1"}}).ok());
}

}  // namespace
}  // namespace oxbow::rewards
