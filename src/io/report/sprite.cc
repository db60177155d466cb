// SPDX-License-Identifier: Apache-2.0
#include "io/report/sprite.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "io/film.h"
#include "io/image.h"

namespace oxbow::io {
namespace {

constexpr uint64_t kPictureBytesMax = 256 << 20;
// Longer sides of a picture on a sprite, the best first. Multiples of JPEG's blocks, so that
// neighbours do not bleed.
constexpr int kSideMin = 16;
constexpr int kSides[] = {512, 448, 384, 320, 256, 224, 192, 160,
                          128, 112, 96,  80,  64,  48,  32,  kSideMin};

// A bit for a pixel is less than a photograph takes.
constexpr double kPixelsPerByte = 8;

int QualityOf(SpriteSize size) { return size == SpriteSize::kLarge ? 82 : 75; }

int SideBelow(int limit) {
  for (const int side : kSides) {
    if (side <= limit) return side;
  }
  return kSideMin;
}

// A cross in the place of a picture that cannot be decoded.
Image8 Cross() {
  constexpr int kSide = 16;
  Image8 image{kSide, kSide, 1, std::vector<uint8_t>(size_t{kSide} * kSide, 96)};
  for (size_t i = 0; i < kSide; ++i) {
    image.pixels[i * kSide + i] = image.pixels[i * kSide + kSide - 1 - i] = 224;
  }
  return image;
}

struct Cells {
  std::vector<FilmCell> cells;
  size_t crosses = 0;
  std::vector<std::string> trouble;  // That the sheet does not know.
};

// One for each picture with a file, or one for the sheet; no frame is larger than what could fit.
Cells CellsOf(const Sheet& sheet, size_t bytes_max) {
  std::vector<std::string> names;
  for (size_t i = 0; i < sheet.shown(); ++i) names.push_back(sheet.pictures[i].picture);
  if (names.empty()) names.push_back(sheet.file.filename().string());
  const auto fits = static_cast<int>(std::sqrt(kPixelsPerByte * static_cast<double>(bytes_max) /
                                               static_cast<double>(names.size())));
  Cells all;
  for (const std::string& name : names) {
    const auto bytes = ReadFile(sheet.Beside(name), kPictureBytesMax);
    auto film = bytes.ok() ? DecodePictureOrFilm(*bytes) : absl::StatusOr<Film>(bytes.status());
    if (!film.ok()) {
      ++all.crosses;
      all.cells.push_back({.frames = {Cross()}});
      if (!sheet.HasTrouble(name)) all.trouble.push_back(sheet.TroubleOf(name, film.status()));
      continue;
    }
    all.cells.emplace_back();
    for (Image8& frame : film->frames) {
      const bool small = std::max(frame.width, frame.height) <= fits;
      all.cells.back().frames.push_back(small ? std::move(frame) : Shrink(frame, SideBelow(fits)));
    }
  }
  return all;
}

GridOptions Bare() { return {.columns = kSpriteColumns, .scale = 1, .gap = 0}; }

// All cells with pictures of this longer side at most, at their first moment.
std::string JpegOf(const std::vector<FilmCell>& cells, int side, int quality) {
  std::vector<GridCell> shown;
  for (const FilmCell& cell : cells) shown.push_back({.image = Shrink(cell.frames.front(), side)});
  return EncodeJpeg(Grid(shown, Bare()), quality);
}

Sprite Fit(const std::vector<FilmCell>& cells, size_t bytes_max, int quality) {
  int64_t pixels = 0;
  int longest = 0;
  for (const FilmCell& cell : cells) {
    const Image8& first = cell.frames.front();
    pixels += int64_t{first.width} * first.height * static_cast<int64_t>(cell.frames.size());
    longest = std::max({longest, first.width, first.height});
  }
  // With many more, it would not fit.
  if (pixels <= 2 * static_cast<int64_t>(bytes_max)) {
    std::string png = EncodeFilm(FilmGrid(cells, Bare()));
    if (png.size() <= bytes_max) return {.type = "image/png", .bytes = std::move(png)};
  }
  std::string jpeg;
  const int times = std::max(1, longest / kSides[0]);  // A whole sheet may be larger.
  for (const int side : kSides) {
    if (side * times > longest && side != kSideMin) continue;
    jpeg = JpegOf(cells, side * times, quality);
    if (jpeg.size() <= bytes_max) break;
  }
  return {.type = "image/jpeg", .bytes = std::move(jpeg)};
}

}  // namespace

size_t SpriteBytesMax(SpriteSize size) {
  static constexpr size_t kMost[] = {12 << 10, 160 << 10, 1 << 20};
  return kMost[static_cast<int>(size)];
}

const char* SpriteName(SpriteSize size) {
  static constexpr const char* kNames[] = {"small", "middle", "large"};
  return kNames[static_cast<int>(size)];
}

Sprite SpriteOf(const Sheet& sheet, SpriteSize size, size_t bytes_max) {
  bytes_max = std::min(bytes_max, SpriteBytesMax(size));
  const std::filesystem::path kept = sheet.Beside(absl::StrCat("eval.", SpriteName(size), ".jpg"));
  if (size != SpriteSize::kLarge) {
    if (auto jpeg = ReadFile(kept, bytes_max); jpeg.ok()) {
      return {.type = "image/jpeg", .bytes = *std::move(jpeg)};
    }
  }
  Cells all = CellsOf(sheet, bytes_max);
  if (all.crosses == all.cells.size()) return {.trouble = std::move(all.trouble)};
  Sprite sprite = Fit(all.cells, bytes_max, QualityOf(size));
  sprite.trouble = std::move(all.trouble);
  // A page without it is as good, only slower to make. With trouble it is made and said again.
  if (size != SpriteSize::kLarge && sprite.type == "image/jpeg" && all.crosses == 0) {
    WriteFileAtomically(kept, sprite.bytes).IgnoreError();
  }
  return sprite;
}

std::string DataUri(const Sprite& sprite) {
  return absl::StrCat("data:", sprite.type, ";base64,", absl::Base64Escape(sprite.bytes));
}

}  // namespace oxbow::io
