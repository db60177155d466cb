// SPDX-License-Identifier: Apache-2.0
#include "io/image.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace oxbow::io {
namespace {

// A font of 3x5 pixels for labels on contact sheets: digits, letters (upper case for both cases),
// '.' and '-'; anything else is blank.
constexpr int kGlyphWidth = 3;
constexpr int kGlyphHeight = 5;

// One row per entry from the top; bit 2 is the left pixel.
using Glyph = std::array<uint8_t, kGlyphHeight>;

constexpr Glyph kDigits[10] = {{7, 5, 5, 5, 7}, {2, 6, 2, 2, 7}, {7, 1, 7, 4, 7}, {7, 1, 7, 1, 7},
                               {5, 5, 7, 1, 1}, {7, 4, 7, 1, 7}, {7, 4, 7, 5, 7}, {7, 1, 1, 1, 1},
                               {7, 5, 7, 5, 7}, {7, 5, 7, 1, 7}};

constexpr Glyph kLetters[26] = {{2, 5, 7, 5, 5}, {6, 5, 6, 5, 6}, {3, 4, 4, 4, 3}, {6, 5, 5, 5, 6},
                                {7, 4, 6, 4, 7}, {7, 4, 6, 4, 4}, {3, 4, 5, 5, 3}, {5, 5, 7, 5, 5},
                                {7, 2, 2, 2, 7}, {1, 1, 1, 5, 2}, {5, 5, 6, 5, 5}, {4, 4, 4, 4, 7},
                                {5, 7, 7, 5, 5}, {6, 5, 5, 5, 5}, {2, 5, 5, 5, 2}, {6, 5, 6, 4, 4},
                                {2, 5, 5, 6, 3}, {6, 5, 6, 5, 5}, {3, 4, 2, 1, 6}, {7, 2, 2, 2, 2},
                                {5, 5, 5, 5, 7}, {5, 5, 5, 5, 2}, {5, 5, 7, 7, 5}, {5, 5, 2, 5, 5},
                                {5, 5, 2, 2, 2}, {7, 1, 2, 4, 7}};

Glyph GlyphOf(char character) {
  if (character >= '0' && character <= '9') return kDigits[character - '0'];
  if (character >= 'A' && character <= 'Z') return kLetters[character - 'A'];
  if (character >= 'a' && character <= 'z') return kLetters[character - 'a'];
  if (character == '.') return {0, 0, 0, 0, 2};
  if (character == '-') return {0, 0, 7, 0, 0};
  return {0, 0, 0, 0, 0};
}

bool IsInked(const Glyph& glyph, int x, int y) {
  return (glyph[static_cast<size_t>(y)] >> (kGlyphWidth - 1 - x)) & 1;
}

constexpr int kLabelScale = 2;
constexpr int kLabelGap = 3;
constexpr int kLabelAdvance = (kGlyphWidth + 1) * kLabelScale;
constexpr int kLabelHeight = kGlyphHeight * kLabelScale + kLabelGap;

// Sizes shared by all cells of one sheet, in screen pixels.
struct Layout {
  int image_width = 0;
  int image_height = 0;
  int frame = 0;
  int label = 0;
  int columns = 0;
  int rows = 0;

  int cell_width() const { return image_width + 2 * frame; }
  int cell_height() const { return label + image_height + 2 * frame; }
  int64_t width(int gap) const { return gap + int64_t{columns} * (cell_width() + gap); }
  int64_t height(int gap) const { return gap + int64_t{rows} * (cell_height() + gap); }
};

GridShape ShapeOf(const std::vector<GridCell>& cells) {
  GridShape shape{.cells = static_cast<int>(cells.size())};
  for (const GridCell& cell : cells) {
    OXBOW_CHECK(IsValid(cell.image))
        << "grid cell of " << cell.image.width << "x" << cell.image.height << "x"
        << cell.image.channels << " with " << cell.image.pixels.size() << " values";
    shape.width = std::max(shape.width, cell.image.width);
    shape.height = std::max(shape.height, cell.image.height);
    shape.framed = shape.framed || cell.frame.has_value();
    shape.labelled = shape.labelled || !cell.label.empty();
  }
  return shape;
}

Layout LayoutOf(const GridShape& shape, const GridOptions& options) {
  Layout layout;
  const int scale = GridScale(shape, options);
  layout.image_width = shape.width * scale;
  layout.image_height = shape.height * scale;
  if (shape.framed) layout.frame = options.frame_width;
  if (shape.labelled) layout.label = kLabelHeight;
  layout.columns = std::min(options.columns, shape.cells);
  layout.rows = (shape.cells + layout.columns - 1) / layout.columns;
  return layout;
}

void FillRectangle(Image8& sheet, int left, int top, int width, int height, Colour colour) {
  for (int y = std::max(top, 0); y < std::min(top + height, sheet.height); ++y) {
    for (int x = std::max(left, 0); x < std::min(left + width, sheet.width); ++x) {
      uint8_t* const pixel = &sheet.pixels[(static_cast<size_t>(y) * sheet.width + x) * 3];
      pixel[0] = colour.red;
      pixel[1] = colour.green;
      pixel[2] = colour.blue;
    }
  }
}

void DrawImage(Image8& sheet, int left, int top, const Image8& image, int scale) {
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      const uint8_t* const source =
          &image.pixels[(static_cast<size_t>(y) * image.width + x) * image.channels];
      const Colour colour = image.channels == 3 ? Colour{source[0], source[1], source[2]}
                                                : Colour{source[0], source[0], source[0]};
      FillRectangle(sheet, left + x * scale, top + y * scale, scale, scale, colour);
    }
  }
}

// As many characters as fit into `width`.
void DrawLabel(Image8& sheet, int left, int top, int width, const std::string& label, Colour ink) {
  const auto fits = static_cast<size_t>((width + kLabelScale) / kLabelAdvance);
  for (size_t i = 0; i < std::min(label.size(), fits); ++i) {
    const Glyph glyph = GlyphOf(label[i]);
    for (int y = 0; y < kGlyphHeight; ++y) {
      for (int x = 0; x < kGlyphWidth; ++x) {
        if (!IsInked(glyph, x, y)) continue;
        FillRectangle(sheet, left + static_cast<int>(i) * kLabelAdvance + x * kLabelScale,
                      top + y * kLabelScale, kLabelScale, kLabelScale, ink);
      }
    }
  }
}

}  // namespace

bool IsValid(const Image8& image) {
  if (image.width <= 0 || image.height <= 0) return false;
  if (image.channels != 1 && image.channels != 3) return false;
  return image.pixels.size() == static_cast<size_t>(image.width) * image.height * image.channels;
}

int GridScale(const GridShape& shape, const GridOptions& options) {
  if (options.scale > 0) return options.scale;
  return std::max(1, kSmallSide / std::max({1, shape.width, shape.height}));
}

int64_t GridPixels(const GridShape& shape, const GridOptions& options) {
  const Layout layout = LayoutOf(shape, options);
  return layout.width(options.gap) * layout.height(options.gap);
}

Image8 Grid(const std::vector<GridCell>& cells, const GridOptions& options) {
  OXBOW_CHECK(!cells.empty() && options.columns > 0 && options.gap >= 0)
      << cells.size() << " cells in " << options.columns << " columns";
  const GridShape shape = ShapeOf(cells);
  const Layout layout = LayoutOf(shape, options);
  const int scale = GridScale(shape, options);
  const int64_t width = layout.width(options.gap);
  const int64_t height = layout.height(options.gap);
  OXBOW_CHECK(width * height <= kGridPixelsMax) << "grid of " << width << "x" << height;

  Image8 sheet{static_cast<int>(width), static_cast<int>(height), 3, {}};
  sheet.pixels.resize(static_cast<size_t>(width * height * 3));
  FillRectangle(sheet, 0, 0, sheet.width, sheet.height, options.background);
  for (size_t i = 0; i < cells.size(); ++i) {
    const GridCell& cell = cells[i];
    const int column = static_cast<int>(i) % layout.columns;
    const int row = static_cast<int>(i) / layout.columns;
    const int left = options.gap + column * (layout.cell_width() + options.gap);
    const int top = options.gap + row * (layout.cell_height() + options.gap);
    DrawLabel(sheet, left, top, layout.cell_width(), cell.label, options.ink);
    const int box_top = top + layout.label;
    if (cell.frame) {
      FillRectangle(sheet, left, box_top, layout.cell_width(), layout.cell_height() - layout.label,
                    *cell.frame);
    }
    DrawImage(sheet, left + layout.frame + (layout.image_width - cell.image.width * scale) / 2,
              box_top + layout.frame + (layout.image_height - cell.image.height * scale) / 2,
              cell.image, scale);
  }
  return sheet;
}

}  // namespace oxbow::io
