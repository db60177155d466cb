// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "io/film.h"

namespace oxbow::io {
namespace {

// The cells at one moment. A video that is over shows its last frame.
std::vector<GridCell> CellsAt(const std::vector<FilmCell>& cells, size_t frame, int side) {
  std::vector<GridCell> shown;
  shown.reserve(cells.size());
  for (const FilmCell& cell : cells) {
    const Image8& image = cell.frames[std::min(frame, cell.frames.size() - 1)];
    shown.push_back({.image = Shrink(image, side), .frame = cell.border, .label = cell.label});
  }
  return shown;
}

GridShape GridShapeOf(const std::vector<FilmCell>& cells) {
  GridShape shape{.cells = static_cast<int>(cells.size())};
  for (const FilmCell& cell : cells) {
    OXBOW_CHECK(!cell.frames.empty()) << "a cell without frames";
    shape.width = std::max(shape.width, cell.frames.front().width);
    shape.height = std::max(shape.height, cell.frames.front().height);
    shape.framed = shape.framed || cell.border.has_value();
    shape.labelled = shape.labelled || !cell.label.empty();
  }
  return shape;
}

int Scaled(int length, int side, int longer) {
  return std::max(1, static_cast<int>((int64_t{length} * side + longer / 2) / longer));
}

// The longest side of pictures at which the grid has at most `pixels_max` pixels; 1 if none has.
int FittingSide(const GridShape& shape, const GridOptions& options, int64_t pixels_max) {
  const int longer = std::max(shape.width, shape.height);
  int fits = 1, too_long = longer + 1;
  while (too_long - fits > 1) {
    const int side = fits + (too_long - fits) / 2;
    GridShape smaller = shape;
    smaller.width = Scaled(shape.width, side, longer);
    smaller.height = Scaled(shape.height, side, longer);
    (GridPixels(smaller, options) <= pixels_max ? fits : too_long) = side;
  }
  return fits;
}

// The part of `source` pixels that pixel `i` of `count` covers.
struct Span {
  Span(int i, int count, int source)
      : begin(double{1} * i * source / count),
        end(double{1} * (i + 1) * source / count),
        first(static_cast<int>(begin)),
        last(std::min(source - 1, static_cast<int>(end))) {}
  // How much of source pixel `at` is in it.
  float Share(int at) const {
    return static_cast<float>(std::max(0.0, std::min(at + 1.0, end) - std::max(at + 0.0, begin)));
  }
  double begin, end;
  int first, last;
};

}  // namespace

Image8 Shrink(const Image8& image, int side) {
  const int longer = std::max(image.width, image.height);
  if (side >= longer) return image;
  Image8 result{
      Scaled(image.width, side, longer), Scaled(image.height, side, longer), image.channels, {}};
  const auto channels = static_cast<size_t>(image.channels);
  const size_t row_values = static_cast<size_t>(image.width) * channels;
  result.pixels.reserve(static_cast<size_t>(result.width) * result.height * channels);
  std::vector<float> row(row_values);
  for (int top = 0; top < result.height; ++top) {
    const Span rows(top, result.height, image.height);
    std::fill(row.begin(), row.end(), 0.0F);
    for (int y = rows.first; y <= rows.last; ++y) {
      const uint8_t* const source = &image.pixels[static_cast<size_t>(y) * row_values];
      const float share = rows.Share(y);
      for (size_t i = 0; i < row_values; ++i) row[i] += share * static_cast<float>(source[i]);
    }
    for (int left = 0; left < result.width; ++left) {
      const Span columns(left, result.width, image.width);
      const auto area = static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
      for (size_t c = 0; c < channels; ++c) {
        float sum = 0;
        for (int x = columns.first; x <= columns.last; ++x) {
          sum += columns.Share(x) * row[static_cast<size_t>(x) * channels + c];
        }
        result.pixels.push_back(static_cast<uint8_t>(std::min(255.0F, sum / area + 0.5F)));
      }
    }
  }
  return result;
}

Film FilmGrid(const std::vector<FilmCell>& cells, const GridOptions& options, int64_t pixels_max) {
  size_t longest = 1;
  for (const FilmCell& cell : cells) longest = std::max(longest, cell.frames.size());
  const size_t every = (longest + kSheetFramesMax - 1) / kSheetFramesMax;
  const size_t count = (longest + every - 1) / every;
  const int64_t frame_max = pixels_max / static_cast<int64_t>(count);
  const GridShape shape = GridShapeOf(cells);
  GridOptions fitting = options;
  fitting.scale = GridScale(shape, options);
  while (fitting.scale > 1 && GridPixels(shape, fitting) > frame_max) --fitting.scale;
  const int side = FittingSide(shape, fitting, frame_max);
  Film film;
  film.time.numerator = static_cast<uint16_t>(every);
  for (size_t frame = 0; frame < longest; frame += every) {
    film.frames.push_back(Grid(CellsAt(cells, frame, side), fitting));
  }
  return film;
}

}  // namespace oxbow::io
