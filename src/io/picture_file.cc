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

}  // namespace

PictureFile PictureFileOf(size_t place, size_t count, const std::vector<Image8>& frames) {
  OXBOW_CHECK(place < count && !frames.empty()) << "picture " << place << " of " << count;
  const auto digits = static_cast<int>(std::max(kDigitsMin, absl::StrCat(count - 1).size()));
  const Image8& first = frames.front();
  const std::string name = absl::StrFormat("%0*d", digits, place);
  const int64_t pixels = int64_t{first.width} * first.height * static_cast<int64_t>(frames.size());
  if (frames.size() > 1 && pixels <= kStoredFilmPixelsMax) {
    return {name + ".png", EncodeFilm({.frames = frames})};
  }
  if (std::max(first.width, first.height) <= kPngSideMax) {
    return {name + ".png", EncodePng(first)};
  }
  return {name + ".jpg", EncodeJpeg(first, kPictureQuality)};
}

}  // namespace oxbow::io
