// SPDX-License-Identifier: Apache-2.0
#include "io/picture_file.h"

#include <algorithm>

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

bool IsFilm(int64_t pixels, int64_t frames) {
  return frames > 1 && pixels * frames <= kStoredFilmPixelsMax;
}

bool IsPng(int64_t width, int64_t height) { return std::max(width, height) <= kPngSideMax; }

}  // namespace

PictureFile PictureFileOf(size_t place, size_t count, const std::vector<Image8>& frames) {
  OXBOW_CHECK(place < count && !frames.empty()) << "picture " << place << " of " << count;
  const auto digits = static_cast<int>(std::max(kDigitsMin, absl::StrCat(count - 1).size()));
  const Image8& first = frames.front();
  const std::string name = absl::StrFormat("%0*d", digits, place);
  if (IsFilm(int64_t{first.width} * first.height, static_cast<int64_t>(frames.size()))) {
    return {name + ".png", EncodeFilm({.frames = frames})};
  }
  if (IsPng(first.width, first.height)) return {name + ".png", EncodePng(first)};
  return {name + ".jpg", EncodeJpeg(first, kPictureQuality)};
}

uint64_t PictureBytesAbout(int64_t width, int64_t height, int64_t frames) {
  const auto pixels = static_cast<double>(width * height);
  if (IsFilm(width * height, frames)) {
    return static_cast<uint64_t>(kPngBytes * pixels * static_cast<double>(frames));
  }
  return static_cast<uint64_t>((IsPng(width, height) ? kPngBytes : kJpegBytes) * pixels);
}

uint64_t SheetBytesAbout(int64_t width, int64_t height, int64_t pictures) {
  const int64_t pixels = std::min(width * height * pictures, kPictureSheetPixelsMax);
  return static_cast<uint64_t>((kPngBytes + kJpegBytes) * static_cast<double>(pixels));
}

}  // namespace oxbow::io
