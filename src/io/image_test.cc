// SPDX-License-Identifier: Apache-2.0
#include "io/image.h"

#include "gtest/gtest.h"

namespace oxbow::io {
namespace {

Colour At(const Image8& sheet, int x, int y) {
  const size_t i = (static_cast<size_t>(y) * sheet.width + x) * 3;
  return {sheet.pixels[i], sheet.pixels[i + 1], sheet.pixels[i + 2]};
}

TEST(GridTest, PlacesScalesAndFramesEveryCell) {
  const Image8 grey{2, 1, 1, {10, 200}};
  const Image8 red{2, 1, 3, {255, 0, 0, 0, 0, 255}};
  const GridOptions options{.columns = 2, .scale = 3, .gap = 4, .frame_width = 1};
  const Image8 sheet =
      Grid({{grey, kRightColour, ""}, {red, std::nullopt, ""}, {grey, kWrongColour, ""}}, options);
  // A cell is 2*3 + 2*1 = 8 wide and 1*3 + 2*1 = 5 high.
  EXPECT_EQ(sheet.width, 4 + 2 * (8 + 4));
  EXPECT_EQ(sheet.height, 4 + 2 * (5 + 4));
  EXPECT_TRUE(IsValid(sheet));
  EXPECT_EQ(At(sheet, 0, 0), options.background);
  EXPECT_EQ(At(sheet, 4, 4), kRightColour);
  EXPECT_EQ(At(sheet, 5, 5), (Colour{10, 10, 10}));
  EXPECT_EQ(At(sheet, 7, 7), (Colour{10, 10, 10}));
  EXPECT_EQ(At(sheet, 8, 7), (Colour{200, 200, 200}));
  EXPECT_EQ(At(sheet, 16, 4), options.background);
  EXPECT_EQ(At(sheet, 17, 5), (Colour{255, 0, 0}));
  EXPECT_EQ(At(sheet, 20, 5), (Colour{0, 0, 255}));
  EXPECT_EQ(At(sheet, 11, 13), kWrongColour);
  EXPECT_EQ(At(sheet, 17, 14), options.background);
}

// Rows of the label's area that hold ink, and that nothing is inked outside it.
int InkedRows(const Image8& sheet, Colour ink, int left, int right, int top, int bottom) {
  int rows = 0;
  for (int y = 0; y < sheet.height; ++y) {
    bool any = false;
    for (int x = 0; x < sheet.width; ++x) {
      if (At(sheet, x, y) != ink) continue;
      any = true;
      EXPECT_TRUE(x >= left && x < right && y >= top && y < bottom) << x << "," << y;
    }
    rows += any;
  }
  return rows;
}

// A label is 10 pixels high; 4 characters fit into 32 pixels.
TEST(GridTest, LabelsStayAboveTheirImageAndInsideTheirCell) {
  const Image8 white{4, 2, 1, std::vector<uint8_t>(8, 255)};
  const GridOptions options{.columns = 1, .scale = 8, .gap = 5, .ink = {1, 2, 3}};
  for (const char* const label : {"473", "0012", "x3 0.60", "end"}) {
    const Image8 sheet = Grid({{white, std::nullopt, label}}, options);
    EXPECT_EQ(sheet.height, 5 + 10 + 3 + 16 + 5) << label;
    EXPECT_EQ(InkedRows(sheet, options.ink, 5, 37, 5, 15), 10) << label;
  }
}

TEST(GridTest, ALabelMakesRoomInAllCells) {
  const Image8 white{4, 2, 1, std::vector<uint8_t>(8, 255)};
  const GridOptions options{.columns = 2, .scale = 8, .gap = 5};
  const Image8 sheet = Grid({{white, std::nullopt, ""}, {white, std::nullopt, "473"}}, options);
  EXPECT_EQ(sheet.height, 5 + 13 + 16 + 5);
  EXPECT_EQ(At(sheet, 5, 5 + 13), (Colour{255, 255, 255}));
  EXPECT_EQ(At(sheet, 42, 5 + 13), (Colour{255, 255, 255}));
}

TEST(GridTest, SmallImagesAreEnlargedUpToALimitAndOthersNever) {
  const struct {
    int side, shown;
  } cases[] = {{8, 96}, {20, 80}, {48, 96}, {49, 49}, {95, 95}, {96, 96}, {128, 128}, {512, 512}};
  for (const auto& [side, shown] : cases) {
    const Image8 grey{side, 1, 1, std::vector<uint8_t>(static_cast<size_t>(side), 90)};
    EXPECT_EQ(Grid({{grey, std::nullopt, ""}}).width, 6 + shown + 6) << side;
  }
}

}  // namespace
}  // namespace oxbow::io
