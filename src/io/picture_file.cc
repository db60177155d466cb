// SPDX-License-Identifier: Apache-2.0
#include "io/picture_file.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "io/film.h"
#include "io/image.h"

namespace oxbow::io {
namespace {

constexpr size_t kDigitsMin = 3;
// Bytes of a pixel of a photograph.
constexpr double kPngBytes = 1.5;
constexpr double kJpegBytes = 0.375;
constexpr double kStripBytes = 0.2;  // The same of the strip of a film.
constexpr int kPreviewSide = 256;
constexpr int kPreviewFrameSide = 168;  // Where it has three.
constexpr int kPreviewPngSideMax = 32;
constexpr int kPreviewQualities[] = {85, 60, 35, 10};  // The best first.

bool IsPng(int64_t width, int64_t height) { return std::max(width, height) <= kPngSideMax; }

std::string FileName(size_t place, size_t count) {
  const auto digits = static_cast<int>(std::max(kDigitsMin, absl::StrCat(count - 1).size()));
  return absl::StrFormat("%0*d", digits, place);
}

bool IsWhole(const std::vector<Image8>& frames) {
  return IsWholeFilm(frames.front().width, frames.front().height, static_cast<int>(frames.size()));
}

}  // namespace

PictureFile PictureFileOf(size_t place, size_t count, const std::vector<Image8>& frames) {
  OXBOW_CHECK(place < count && !frames.empty()) << "picture " << place << " of " << count;
  const Image8& first = frames.front();
  const std::string name = FileName(place, count);
  if (IsWhole(frames)) return {name + ".png", EncodeFilm({.frames = frames})};
  if (IsPng(first.width, first.height)) return {name + ".png", EncodePng(first)};
  return {name + ".jpg", EncodeJpeg(first, kPictureQuality)};
}

bool IsWholeFilm(int width, int height, int frames) {
  return frames > 1 && int64_t{width} * height * frames <= kStoredFilmPixelsMax;
}

std::optional<FilmStrip> FilmStripOf(size_t place, size_t count,
                                     const std::vector<Image8>& frames) {
  if (frames.size() < 2 || IsWhole(frames)) return std::nullopt;
  const Image8& first = frames.front();
  const size_t every = (frames.size() + kSheetFramesMax - 1) / kSheetFramesMax;
  const size_t shown = (frames.size() + every - 1) / every;
  const double share = static_cast<double>(kFilmStripPixelsMax) / static_cast<double>(shown) /
                       (static_cast<double>(first.width) * first.height);
  const double side = std::max(first.width, first.height) * std::min(1.0, std::sqrt(share));
  std::vector<GridCell> cells;
  for (size_t i = 0; i < frames.size(); i += every) {
    cells.push_back({.image = Shrink(frames[i], static_cast<int>(side))});
  }
  const bool wide = first.width >= first.height;
  const Image8 strip =
      Grid(cells, {.columns = wide ? 1 : static_cast<int>(shown), .scale = 1, .gap = 0});
  return FilmStrip{{FileName(place, count) + ".film.jpg", EncodeJpeg(strip, kFilmStripQuality)},
                   static_cast<int>(shown)};
}

uint64_t PictureBytesAbout(int64_t width, int64_t height, int64_t frames) {
  const auto pixels = static_cast<double>(width * height);
  if (IsWholeFilm(static_cast<int>(width), static_cast<int>(height), static_cast<int>(frames))) {
    return static_cast<uint64_t>(kPngBytes * pixels * static_cast<double>(frames));
  }
  const double still = (IsPng(width, height) ? kPngBytes : kJpegBytes) * pixels;
  const double strip = frames < 2
                           ? 0
                           : kStripBytes * std::min(pixels * static_cast<double>(frames),
                                                    static_cast<double>(kFilmStripPixelsMax));
  return static_cast<uint64_t>(still + strip);
}

uint64_t SheetBytesAbout(int64_t width, int64_t height, int64_t pictures) {
  const int64_t pixels = std::min(width * height * pictures, kPictureSheetPixelsMax);
  return static_cast<uint64_t>((kPngBytes + kJpegBytes) * static_cast<double>(pixels));
}

std::string PreviewOf(const std::vector<Image8>& frames) {
  OXBOW_CHECK(!frames.empty()) << "a preview of no frame";
  Image8 shown;
  if (frames.size() == 1) {
    shown = Shrink(frames.front(), kPreviewSide);
  } else {
    std::vector<GridCell> cells;
    for (const size_t place : {size_t{0}, frames.size() / 2, frames.size() - 1}) {
      cells.push_back({.image = Shrink(frames[place], kPreviewFrameSide)});
    }
    shown = Grid(cells, {.columns = 3, .scale = 1, .gap = 0});
  }
  if (std::max(frames.front().width, frames.front().height) <= kPreviewPngSideMax) {
    return EncodePng(shown);
  }
  std::string jpeg;
  for (const int quality : kPreviewQualities) {
    jpeg = EncodeJpeg(shown, quality);
    if (jpeg.size() <= kPreviewBytesMax) break;
  }
  return jpeg;
}

uint64_t PreviewBytesAbout(int64_t width, int64_t height, int64_t frames) {
  const int64_t side = frames > 1 ? kPreviewFrameSide : kPreviewSide;
  const double pixels =
      static_cast<double>(std::min(width, side) * std::min(height, side)) * (frames > 1 ? 3 : 1);
  return static_cast<uint64_t>(kJpegBytes * pixels);
}

std::optional<PictureFacts> FactsOfPicture(std::string_view bytes) {
  const bool jpeg = bytes.starts_with("\xff\xd8");
  const absl::StatusOr<ImageShape> shape = jpeg ? ShapeOfJpeg(bytes) : ShapeOfPng(bytes);
  if (!shape.ok()) return std::nullopt;
  return PictureFacts{shape->width, shape->height, jpeg ? "jpg" : "png"};
}

}  // namespace oxbow::io
