// SPDX-License-Identifier: Apache-2.0
// Requests of Flow-Factory's clients: right ones, and bytes that nobody sent with good intentions.
#include "services/reward/compute_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "io/image.h"

namespace oxbow::reward {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

Image8 Grey(int width, uint8_t value) {
  return {.width = width,
          .height = 2,
          .channels = 1,
          .pixels = std::vector<uint8_t>(2UL * width, value)};
}

json Png64(const Image8& image) { return absl::Base64Escape(io::EncodePng(image)); }

json Video(const std::vector<Image8>& frames) {
  json video = json::array();
  for (const Image8& frame : frames) video.push_back(Png64(frame));
  return video;
}

TEST(ComputeRequestTest, ReadsWhatFlowFactorysClientSends) {
  const json request = {{"prompt", {"a cat", "a dog"}},
                        {"image", {Png64(Grey(3, 1)), Png64(Grey(5, 2))}},
                        {"video", nullptr},
                        {"condition_images", nullptr},
                        {"condition_videos", nullptr},
                        {"kwargs", nullptr}};
  const auto read = ReadComputeRequest(request.dump(), 2);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->items.size(), 2);
  EXPECT_EQ(read->items[1].prompt, "a dog");
  EXPECT_EQ(read->items[1].metadata_json, "");
  EXPECT_EQ(read->items[1].frames, std::vector<Image8>{Grey(5, 2)});
}

TEST(ComputeRequestTest, ReadsVideosAndMetadata) {
  const json request = {{"prompt", {"a"}},
                        {"video", json::array({Video({Grey(3, 1), Grey(3, 2)})})},
                        {"extra", {{{"text", "473"}}}}};
  const auto read = ReadComputeRequest(request.dump(), 2);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->items[0].frames, (std::vector<Image8>{Grey(3, 1), Grey(3, 2)}));
  EXPECT_EQ(read->items[0].metadata_json, R"({"text":"473"})");
}

TEST(ComputeRequestTest, SaysWhatIsWrongAndWhere) {
  const json png = Png64(Grey(3, 1)), wide = Png64(Grey(9000, 1));
  const std::pair<json, const char*> wrong[] = {
      {json::array(), "no JSON object"},
      {{{"image", {png}}}, "`prompt` is a list"},
      {{{"prompt", json::array()}, {"image", json::array()}}, "`prompt` is a list"},
      {{{"prompt", {1}}, {"image", {png}}}, "`prompt` is a list"},
      {{{"prompt", {"a", "b", "c"}}, {"image", {png, png, png}}}, "at most 2 items"},
      {{{"prompt", {"a"}}}, "either `image` or `video`"},
      {{{"prompt", {"a"}}, {"image", {png}}, {"video", json::array({Video({Grey(3, 1)})})}},
       "either `image` or `video`"},
      {{{"prompt", {"a", "b"}}, {"image", {png}}}, "for each of 2 prompts"},
      {{{"prompt", {"a", "b"}}, {"image", {png, 3}}}, "image[1]: expected base64"},
      {{{"prompt", {"a", "b"}}, {"image", {png, "!"}}}, "image[1]: expected base64"},
      {{{"prompt", {"a"}}, {"image", {"aaaa"}}}, "image[0]: "},
      {{{"prompt", {"a"}}, {"image", {wide}}}, "image[0]: image side"},
      {{{"prompt", {"a"}}, {"video", {json::array()}}}, "video[0]: expected a video"},
      {{{"prompt", {"a"}}, {"video", json::array({Video({Grey(3, 1), Grey(4, 1)})})}},
       "video[0]: frames of one video differ"},
      {{{"prompt", {"a"}}, {"image", {png}}, {"extra", {1, 2}}}, "`extra` is null"},
      {{{"prompt", {"a"}}, {"image", {png}}, {"extra", {1}}}, "extra[0] is no object"},
      {{{"prompt", {"a"}}, {"image", {png}}, {"condition_images", {{png}}}}, "`condition_images`"}};
  for (const auto& [request, expected] : wrong) {
    const absl::Status status = ReadComputeRequest(request.dump(), 2).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << request.dump();
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected)) << request.dump();
  }
  for (const std::string& bytes :
       {std::string(), std::string("nonsense"), std::string(1 << 20, '['),
        std::string("{\"prompt\": [\"\xff\"]")}) {
    EXPECT_EQ(ReadComputeRequest(bytes, 2).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(ComputeRequestTest, ThePixelsOfARequestHaveOneLimit) {
  const Image8 large{
      .width = 8192, .height = 4096, .channels = 1, .pixels = std::vector<uint8_t>(8192UL * 4096)};
  const json png = Png64(large);
  const auto of = [&](size_t count) {
    return ReadComputeRequest(json{{"prompt", std::vector<std::string>(count, "a")},
                                   {"image", std::vector<json>(count, png)}}
                                  .dump(),
                              8);
  };
  EXPECT_TRUE(of(2).ok()) << of(2).status();
  EXPECT_EQ(of(3).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ComputeRequestTest, ACallHasAllItsRewardsOrItFails) {
  std::vector<absl::StatusOr<Score>> scores = {Score{.value = .5}, Score{.value = -2}};
  EXPECT_EQ(ReplyOf(scores).code, 200);
  EXPECT_EQ(ReplyOf(scores).body, R"({"rewards":[0.5,-2.0]})");
  const std::pair<absl::Status, int> errors[] = {
      {absl::InvalidArgumentError("no digits"), 400},   {absl::NotFoundError("no digits"), 404},
      {absl::ResourceExhaustedError("no digits"), 503}, {absl::UnavailableError("no digits"), 503},
      {absl::InternalError("no digits"), 500},          {absl::DataLossError("no digits"), 500}};
  for (const auto& [error, code] : errors) {
    scores[1] = error;
    EXPECT_EQ(ReplyOf(scores).code, code);
    EXPECT_EQ(ReplyOf(scores).body, R"({"detail":"item 1: no digits"})");
  }
}

}  // namespace
}  // namespace oxbow::reward
