// SPDX-License-Identifier: Apache-2.0
// Boxes and lines against PaddleX's, with OpenCV and pyclipper: tools/make_ppocr_goldens.py.
#include "rewards/text_regions.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/graph_files.h"
#include "io/safetensors.h"

namespace oxbow::rewards {
namespace {

using nlohmann::json;
using reward::PixelSize;
using reward::TextBox;

std::filesystem::path Goldens() {
  const char* directory = std::getenv("OXBOW_SCORER_GOLDENS");
  return std::filesystem::path(directory != nullptr ? directory
                                                    : OXBOW_SOURCE_DIR "/tests/golden/scorers") /
         "ppocr";
}

json Golden() { return json::parse(*io::ReadGraphFile(Goldens() / "boxes.json.gz")); }

TextBox BoxOf(const json& flat) {
  TextBox box;
  for (size_t i = 0; i < 4; ++i) box[i] = {flat[2 * i].get<float>(), flat[2 * i + 1].get<float>()};
  return box;
}

std::vector<float> MapOf(const json& bytes) {
  std::vector<float> map;
  for (const json& byte : bytes) map.push_back(byte.get<float>() / 255);
  return map;
}

float Difference(const TextBox& a, const TextBox& b) {
  float most = 0;
  for (size_t i = 0; i < 4; ++i) {
    most = std::max({most, std::abs(a[i].x - b[i].x), std::abs(a[i].y - b[i].y)});
  }
  return most;
}

// Promise: Rewards are those of their projects.

TEST(TextRegionsTest, BoxesAreThoseOfPaddleXWithinAPixel) {
  int boxes = 0;
  float most = 0;
  const json golden = Golden();
  for (const json& item : golden["maps"]) {
    const PixelSize picture{item["picture"][1], item["picture"][0]};
    const auto found = FindTextBoxes(MapOf(item["map"]), {item["width"], item["height"]}, picture);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ(found->size(), item["boxes"].size());
    for (size_t i = 0; i < found->size(); ++i, ++boxes) {
      const float difference = Difference((*found)[i], BoxOf(item["boxes"][i]));
      EXPECT_LE(difference, 1) << item["boxes"][i];
      most = std::max(most, difference);
    }
  }
  EXPECT_GT(boxes, 40);
  std::cout << "ppocr: " << boxes << " boxes, max difference " << most << " pixels\n";
}

// The masks are those of OpenCV 4.10, whatever is installed.
TEST(TextRegionsTest, MasksOfBoxesAreThoseOfPaddleX) {
  const json golden = Golden();
  ASSERT_GT(golden["masks"].size(), 100u);
  for (const json& item : golden["masks"]) {
    const auto rows = item["rows"].get<std::vector<std::string>>();
    std::vector<uint8_t> theirs;
    for (const std::string& row : rows) {
      for (const char pixel : row) theirs.push_back(pixel == '1');
    }
    const PixelSize size{static_cast<int>(rows[0].size()), static_cast<int>(rows.size())};
    EXPECT_EQ(BoxMask(size, BoxOf(item["box"])), theirs) << item;
  }
}

TEST(TextRegionsTest, LinesAreCutOutAsPaddleXDoes) {
  const auto file = io::ReadSafetensors(Goldens() / "pictures.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  const io::TensorBytes& tensor = file->tensors.at("image.0");
  const Image8 picture{static_cast<int>(tensor.shape[1]),
                       static_cast<int>(tensor.shape[0]),
                       3,
                       {tensor.data.begin(), tensor.data.end()}};
  const json golden = Golden();
  ASSERT_GT(golden["lines"].size(), 10u);
  int most = 0;
  for (const json& item : golden["lines"]) {
    const std::optional<Image8> line = CutLine(picture, BoxOf(item["box"]));
    ASSERT_TRUE(line.has_value());
    ASSERT_EQ(line->width, item["width"]) << item["box"];
    ASSERT_EQ(line->height, item["height"]) << item["box"];
    for (size_t i = 0; i < line->pixels.size(); ++i) {
      most = std::max(most, std::abs(line->pixels[i] - item["pixels"][i].get<int>()));
    }
  }
  EXPECT_LE(most, 1);
  std::cout << "ppocr: lines differ by " << most << " of 255\n";
}

TEST(TextRegionsTest, ABoxWithoutPixelsHasNoLine) {
  const Image8 picture{8, 8, 3, std::vector<uint8_t>(192)};
  EXPECT_FALSE(CutLine(picture, {{{3, 3}, {3, 3}, {3, 3}, {3, 3}}}).has_value());
  EXPECT_TRUE(CutLine(picture, {{{3, 3}, {8, 3}, {8, 6}, {3, 6}}}).has_value());
}

// Dots of one pixel, two apart.
std::vector<float> Dots(PixelSize size) {
  std::vector<float> map(static_cast<size_t>(size.width) * size.height);
  for (int y = 0; y < size.height; y += 2) {
    for (int x = 0; x < size.width; x += 2) map[static_cast<size_t>(y) * size.width + x] = 1;
  }
  return map;
}

// Promise: The OCR engine makes no score up.
TEST(TextRegionsTest, MoreRegionsThanTextHasAreAnError) {
  const PixelSize many{200, 200}, few{100, 100};
  EXPECT_THAT(*FindTextBoxes(Dots(few), few, few), ::testing::IsEmpty());
  const absl::Status status = FindTextBoxes(Dots(many), many, many).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "the text detector finds 10000 regions, more than 5000, in a map of 200 x 200: are "
            "these its weights?");
}

TEST(TextRegionsTest, AMapWithoutTextHasNoBoxes) {
  const PixelSize size{64, 32};
  EXPECT_THAT(*FindTextBoxes(std::vector<float>(64 * 32, 0.3f), size, size), ::testing::IsEmpty());
  const auto full = FindTextBoxes(std::vector<float>(64 * 32, 1), size, size);
  ASSERT_EQ(full->size(), 1u);
  EXPECT_EQ(full->front(), (TextBox{{{0, 0}, {64, 0}, {64, 32}, {0, 32}}}));
}

}  // namespace
}  // namespace oxbow::rewards
