// SPDX-License-Identifier: Apache-2.0
#include "io/image.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace oxbow::io {
namespace {

// A font of 3x5 pixels for labels on contact sheets: digits, letters (upper case for both cases)
// and little punctuation; anything else is blank.
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
  switch (character) {
    case '.':
      return {0, 0, 0, 0, 2};
    case ',':
      return {0, 0, 0, 2, 4};
    case '-':
      return {0, 0, 7, 0, 0};
    case '+':
      return {0, 2, 7, 2, 0};
    case '_':
      return {0, 0, 0, 0, 7};
    case '=':
      return {0, 7, 0, 7, 0};
    case ':':
      return {0, 2, 0, 2, 0};
    case '/':
      return {1, 1, 2, 4, 4};
    case '%':
      return {5, 1, 2, 4, 5};
    case '?':
      return {7, 1, 2, 0, 2};
    case '!':
      return {2, 2, 2, 0, 2};
    case '(':
      return {1, 2, 2, 2, 1};
    case ')':
      return {4, 2, 2, 2, 4};
    case '\'':
      return {2, 2, 0, 0, 0};
    default:
      return {0, 0, 0, 0, 0};
  }
}

bool IsInked(const Glyph& glyph, int x, int y) {
  return (glyph[static_cast<size_t>(y)] >> (kGlyphWidth - 1 - x)) & 1;
}

constexpr int kLabelScale = 2;
constexpr int kLabelGap = 3;
constexpr int kLabelAdvance = (kGlyphWidth + 1) * kLabelScale;
constexpr int kLabelLine = (kGlyphHeight + 1) * kLabelScale;
constexpr size_t kLabelLinesMax = 6;

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

// The label as lines that fit into `width`, broken between words, or within one that is too long;
// what comes after the last line is left out.
std::vector<std::string> LinesOf(const std::string& label, int width) {
  const size_t fits = static_cast<size_t>(std::max(1, (width + kLabelScale) / kLabelAdvance));
  std::vector<std::string> lines;
  for (size_t at = 0; at < label.size() && lines.size() < kLabelLinesMax;) {
    size_t end = std::min(at + fits, label.size());
    if (end < label.size() && label[end] != ' ') {
      const size_t space = label.rfind(' ', end);
      if (space != std::string::npos && space > at) end = space;
    }
    lines.push_back(label.substr(at, end - at));
    at = end + (end < label.size() && label[end] == ' ' ? 1 : 0);
  }
  return lines;
}

Layout Measure(const std::vector<GridCell>& cells, const GridOptions& options) {
  Layout layout;
  for (const GridCell& cell : cells) {
    OXBOW_CHECK(IsValid(cell.image))
        << "grid cell of " << cell.image.width << "x" << cell.image.height << "x"
        << cell.image.channels << " with " << cell.image.pixels.size() << " values";
    layout.image_width = std::max(layout.image_width, cell.image.width * options.scale);
    layout.image_height = std::max(layout.image_height, cell.image.height * options.scale);
    if (cell.frame) layout.frame = options.frame_width;
  }
  for (const GridCell& cell : cells) {
    const auto lines = static_cast<int>(LinesOf(cell.label, layout.cell_width()).size());
    if (lines > 0)
      layout.label = std::max(layout.label, lines * kLabelLine - kLabelScale + kLabelGap);
  }
  const int count = static_cast<int>(cells.size());
  layout.columns = std::min(options.columns, count);
  layout.rows = (count + layout.columns - 1) / layout.columns;
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

void DrawLine(Image8& sheet, int left, int top, const std::string& line, Colour ink) {
  for (size_t i = 0; i < line.size(); ++i) {
    const Glyph glyph = GlyphOf(line[i]);
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

int64_t GridPixels(const std::vector<GridCell>& cells, const GridOptions& options) {
  const Layout layout = Measure(cells, options);
  return layout.width(options.gap) * layout.height(options.gap);
}

Image8 Grid(const std::vector<GridCell>& cells, const GridOptions& options) {
  OXBOW_CHECK(!cells.empty() && options.columns > 0 && options.scale > 0 && options.gap >= 0)
      << cells.size() << " cells in " << options.columns << " columns, scale " << options.scale;
  const Layout layout = Measure(cells, options);
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
    int line_top = top;
    for (const std::string& line : LinesOf(cell.label, layout.cell_width())) {
      DrawLine(sheet, left, line_top, line, options.ink);
      line_top += kLabelLine;
    }
    const int box_top = top + layout.label;
    if (cell.frame) {
      FillRectangle(sheet, left, box_top, layout.cell_width(), layout.cell_height() - layout.label,
                    *cell.frame);
    }
    DrawImage(
        sheet, left + layout.frame + (layout.image_width - cell.image.width * options.scale) / 2,
        box_top + layout.frame + (layout.image_height - cell.image.height * options.scale) / 2,
        cell.image, options.scale);
  }
  return sheet;
}

}  // namespace oxbow::io
