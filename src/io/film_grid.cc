// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "io/film.h"

namespace oxbow::io {
namespace {

// The cells at one moment. A video that is over shows its last frame.
std::vector<GridCell> CellsAt(const std::vector<FilmCell>& cells, size_t frame, int shrink) {
  std::vector<GridCell> shown;
  shown.reserve(cells.size());
  for (const FilmCell& cell : cells) {
    OXBOW_CHECK(!cell.frames.empty()) << "a cell without frames";
    const Image8& image = cell.frames[std::min(frame, cell.frames.size() - 1)];
    shown.push_back({.image = shrink == 1 ? image : Shrink(image, shrink),
                     .frame = cell.border,
                     .label = cell.label});
  }
  return shown;
}

}  // namespace

Image8 Shrink(const Image8& image, int n) {
  const auto smaller = [n](int side) { return (side + n - 1) / n; };
  Image8 result{smaller(image.width), smaller(image.height), image.channels, {}};
  result.pixels.reserve(static_cast<size_t>(result.width) * result.height * result.channels);
  for (int top = 0; top < image.height; top += n) {
    for (int left = 0; left < image.width; left += n) {
      for (int c = 0; c < image.channels; ++c) {
        int sum = 0, count = 0;
        for (int y = top; y < std::min(top + n, image.height); ++y) {
          for (int x = left; x < std::min(left + n, image.width); ++x, ++count) {
            sum += image.pixels[(static_cast<size_t>(y) * image.width + x) * image.channels + c];
          }
        }
        result.pixels.push_back(static_cast<uint8_t>((2 * sum + count) / (2 * count)));
      }
    }
  }
  return result;
}

Film FilmGrid(const std::vector<FilmCell>& cells, const GridOptions& options) {
  size_t longest = 1;
  for (const FilmCell& cell : cells) longest = std::max(longest, cell.frames.size());
  const size_t every = (longest + kSheetFramesMax - 1) / kSheetFramesMax;
  const size_t count = (longest + every - 1) / every;
  const int64_t pixels_max =
      longest == 1 ? kGridPixelsMax : kSheetPixelsMax / static_cast<int64_t>(count);
  GridOptions fitting = options;
  int shrink = 1;
  // Below this size labels and gaps are what is left.
  while (shrink < 64 && GridPixels(CellsAt(cells, 0, shrink), fitting) > pixels_max) {
    if (fitting.scale > 1) {
      --fitting.scale;
    } else {
      ++shrink;
    }
  }
  Film film;
  film.time.numerator = static_cast<uint16_t>(every);
  for (size_t frame = 0; frame < longest; frame += every) {
    film.frames.push_back(Grid(CellsAt(cells, frame, shrink), fitting));
  }
  return film;
}

}  // namespace oxbow::io
