// SPDX-License-Identifier: Apache-2.0
// Arithmetic of boxes against OpenCV and Clipper: tools/make_ppocr_goldens.py.
#include "core/reward/text_boxes.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden/reward_golden.h"

namespace oxbow::reward {
namespace {

using nlohmann::json;

json Golden() { return json::parse(*ReadFile(RewardGolden("text_boxes.json"))); }

BoxPoint PointOf(const json& xy) { return {xy[0].get<float>(), xy[1].get<float>()}; }

TextBox BoxOf(const json& corners) {
  TextBox box;
  for (size_t i = 0; i < 4; ++i) box[i] = PointOf(corners[i]);
  return box;
}

// How far points reach in a direction: equal in all of them if their hulls are.
double Reach(const std::vector<BoxPoint>& points, double angle) {
  double most = -INFINITY;
  for (const BoxPoint& point : points) {
    most = std::max(most, point.x * std::cos(angle) + point.y * std::sin(angle));
  }
  return most;
}

// A box that begins at a point.
TextBox At(float x, float y) { return {{{x, y}, {x + 5, y}, {x + 5, y + 5}, {x, y + 5}}}; }

// Promise: Rewards are those of their projects.

TEST(TextBoxesTest, SizesAreThoseOfPaddleX) {
  const json golden = Golden();
  ASSERT_GE(golden["sizes"].size(), 100u);
  for (const json& item : golden["sizes"]) {
    const DetectionSizes sizes = DetectionSizesOf({item["size"][1], item["size"][0]});
    const json ours = {{sizes.padded.height, sizes.padded.width},
                       {sizes.resized.height, sizes.resized.width}};
    EXPECT_EQ(ours, item["detection"]) << item;
  }
  for (const json& item : golden["lines"]) {
    const LineWidths widths = LineWidthsOf({item["size"][1], item["size"][0]});
    EXPECT_EQ(json({widths.resized, widths.padded}), item["widths"]) << item;
  }
}

TEST(TextBoxesTest, CornersBeginAtTheUpperLeft) {
  const json golden = Golden();
  ASSERT_GE(golden["boxes"].size(), 100u);
  for (const json& item : golden["boxes"]) {
    EXPECT_EQ(InOrder(BoxOf(item["corners"])), BoxOf(item["box"])) << item;
  }
}

TEST(TextBoxesTest, OutlinesAreClippers) {
  const json golden = Golden();
  ASSERT_GE(golden["outlines"].size(), 100u);
  for (const json& item : golden["outlines"]) {
    std::vector<BoxPoint> theirs;
    for (const json& point : item["outline"]) theirs.push_back(PointOf(point));
    const std::vector<BoxPoint> ours = Unclipped(BoxOf(item["box"]), 1.5);
    for (int degrees = 0; degrees < 360; ++degrees) {
      const double angle = degrees * std::numbers::pi / 180;
      ASSERT_NEAR(Reach(ours, angle), Reach(theirs, angle), 1e-9) << item["box"] << " " << degrees;
    }
  }
}

TEST(TextBoxesTest, ReadingOrderIsPaddleXs) {
  const json golden = Golden();
  ASSERT_GE(golden["orders"].size(), 30u);
  for (const json& item : golden["orders"]) {
    std::vector<TextBox> boxes;
    for (const json& point : item["boxes"]) boxes.push_back(At(point[0], point[1]));
    SortForReading(boxes);
    json order = json::array();
    for (const TextBox& box : boxes) {
      order.push_back({static_cast<int>(box[0].x), static_cast<int>(box[0].y)});
    }
    EXPECT_EQ(order, item["order"]) << item["boxes"];
  }
}

TEST(TextBoxesTest, BoxesOfOneLineGoFromLeftToRight) {
  std::vector<TextBox> boxes = {At(50, 20), At(9, 31), At(90, 12), At(10, 25)};
  SortForReading(boxes);
  EXPECT_THAT(boxes, ::testing::ElementsAre(At(50, 20), At(90, 12), At(9, 31), At(10, 25)));
}

TEST(TextBoxesTest, BoxesOnAPictureAreWholePixelsWithinIt) {
  const TextBox box = {{{-3, 1}, {20, 1}, {20, 16.2f}, {-3, 16.2f}}};
  EXPECT_EQ(Scaled(box, {32, 32}, {16, 48}), (TextBox{{{0, 2}, {10, 2}, {10, 24}, {0, 24}}}));
  EXPECT_EQ(Scaled(box, {32, 32}, {8, 8}), (TextBox{{{0, 0}, {5, 0}, {5, 4}, {0, 4}}}));
}

}  // namespace
}  // namespace oxbow::reward
