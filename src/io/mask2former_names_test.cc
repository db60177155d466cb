// SPDX-License-Identifier: Apache-2.0
#include "io/mask2former_names.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/graph_files.h"

namespace oxbow::io {
namespace {

using ::testing::HasSubstr;
using Shapes = std::map<std::string, std::vector<int64_t>>;

Shapes ShapesOf(const std::map<std::string, TensorHeader>& headers) {
  Shapes shapes;
  for (const auto& [name, header] : headers) shapes[name] = header.shape;
  return shapes;
}

// Names and shapes of the tensors of GenEval's detector as the source of mmdetection 2.28 gives
// them, written by tools/make_geneval_goldens.py. No checkpoint was seen.
std::map<std::string, TensorHeader> OfMmdetection() {
  const auto text =
      ReadGraphFile(OXBOW_SOURCE_DIR "/tests/golden/checkpoints/mask2former_mmdet.json.gz");
  EXPECT_TRUE(text.ok()) << text.status();
  const auto shapes = nlohmann::json::parse(*text);
  std::map<std::string, TensorHeader> headers;
  for (const auto& [name, shape] : shapes.items()) {
    headers[name] = {.dtype = DType::kF32, .shape = shape.get<std::vector<int64_t>>()};
  }
  return headers;
}

TEST(Mask2FormerNamesTest, TheShippedGraphGetsEachOfItsWeightsOnce) {
  const auto names = FromMmdet(OfMmdetection());
  ASSERT_TRUE(names.ok()) << names.status();
  const auto graph = nlohmann::json::parse(*ReadGraphFile(
      OXBOW_SOURCE_DIR "/models/graphs/Mask2Former-mask2former-swin-s-coco.json.gz"));
  Shapes wanted;
  for (const auto& parameter : graph["parameters"]) {
    wanted[parameter["name"]] = parameter["shape"].get<std::vector<int64_t>>();
  }
  EXPECT_GE(wanted.size(), 500u);
  EXPECT_EQ(ShapesOf(names->headers), wanted);
  // Each is made of a tensor of its own, or a third of one.
  std::set<std::pair<std::string, int>> sources;
  for (const auto& [name, source] : names->sources) sources.insert({source.name, source.third});
  EXPECT_EQ(sources.size(), wanted.size());
}

TEST(Mask2FormerNamesTest, TensorsOfOtherNetworksAreNamed) {
  auto headers = OfMmdetection();
  EXPECT_TRUE(IsMmdetMask2Former(headers));
  headers["backbone.layer1.0.conv1.weight"] = {};
  const auto status = FromMmdet(headers).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("backbone.layer1.0.conv1.weight"));
  EXPECT_FALSE(FromMmdet({{"backbone.stages.0.blocks.0.attn.w_msa.qkv.weight",
                           {.dtype = DType::kF32, .shape = {4, 2}}}})
                   .ok());
  EXPECT_FALSE(IsMmdetMask2Former({{"visual.conv1.weight", {}}}));
}

TEST(Mask2FormerNamesTest, ColumnsOfMergedPixelsChangeTheirOrder) {
  const TensorHeader header{.dtype = DType::kU8, .shape = {2, 8}};
  const TensorSource source{.name = "w", .third = -1, .unfolded = true};
  // Two channels of (row, column) 00, 01, 10, 11 become pixels 00, 10, 01, 11 of two channels.
  EXPECT_EQ(BytesOf(source, header, "aBcDeFgHijklmnop"), "aecgBFDHimkojnlp");
  EXPECT_EQ(BytesOf({.name = "w", .third = 1}, {.dtype = DType::kU8, .shape = {3, 2}}, "abcdef"),
            "cd");
}

}  // namespace
}  // namespace oxbow::io
