// SPDX-License-Identifier: Apache-2.0
#include "io/report/sheets.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
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

namespace fs = std::filesystem;

constexpr uint64_t kCaptionBytesMax = 1 << 16;
constexpr char kPrefix[] = "step_";

std::optional<int64_t> StepOf(const fs::path& directory) {
  const std::string name = directory.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* const begin = name.data() + sizeof kPrefix - 1;
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

// Every step that has a sheet.
std::vector<Sheet> Found(const fs::path& run_dir) {
  std::vector<Sheet> sheets;
  std::error_code error;
  fs::directory_iterator entries(run_dir / "samples", error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    std::error_code ignored;
    const auto step = StepOf(entries->path());
    const fs::path file = entries->path() / "eval.png";
    if (step && fs::exists(file, ignored)) sheets.push_back({.step = *step, .file = file});
  }
  std::sort(sheets.begin(), sheets.end(),
            [](const Sheet& a, const Sheet& b) { return a.step < b.step; });
  return sheets;
}

// The shape that a picture's file begins with, if the file ends as a whole one does.
absl::StatusOr<ImageShape> ShapeOfFile(const fs::path& path) {
  constexpr std::streamoff kHead = 4096, kTail = 12;
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError("is not there");
  std::string head(kHead, '\0'), tail(kTail, '\0');
  file.read(head.data(), kHead);
  head.resize(static_cast<size_t>(file.gcount()));
  file.clear();
  file.seekg(-kTail, std::ios::end);
  file.read(tail.data(), kTail);
  const bool jpeg = head.starts_with("\xff\xd8");
  OXBOW_ASSIGN_OR_RETURN(const ImageShape shape,
                         jpeg ? ShapeOfJpeg(head) : ShapeOfPng(head + tail));
  if (jpeg && !tail.ends_with("\xff\xd9")) return absl::DataLossError("truncated JPEG");
  if (int64_t{shape.width} * shape.height > kDecodedPixelsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("is too large to be shown: ", shape.width, " x ", shape.height, " pixels"));
  }
  return shape;
}

// A sheet is written within a moment, file by file.
constexpr std::chrono::seconds kSettled{2};

void Load(Sheet& sheet) {
  const auto add_trouble = [&](const std::string& name, const absl::Status& why) {
    sheet.trouble.push_back(sheet.TroubleOf(name, why));
  };
  if (const auto shape = ShapeOfFile(sheet.file); shape.ok()) {
    sheet.width = shape->width;
    sheet.height = shape->height;
  } else {
    add_trouble("eval.png", shape.status());
  }
  if (auto text = ReadFile(fs::path(sheet.file).replace_extension("txt"), kCaptionBytesMax);
      text.ok()) {
    sheet.caption = *std::move(text);
  }
  auto pictures = ReadEvaluation(sheet.Beside(kEvaluationFile));
  if (!pictures.ok()) {
    if (!absl::IsNotFound(pictures.status())) add_trouble(kEvaluationFile, pictures.status());
    return;
  }
  sheet.pictures = *std::move(pictures);
  if (sheet.shown() == kPicturesMax && sheet.pictures.size() > kPicturesMax) {
    sheet.trouble.push_back(absl::StrCat("step ", sheet.step, ": the first ", kPicturesMax,
                                         " pictures are shown, the others are files"));
  }
  for (size_t i = 0; i < sheet.shown(); ++i) {
    for (const std::string& name : {sheet.pictures[i].picture, sheet.pictures[i].film}) {
      if (name.empty()) continue;
      if (const auto shape = ShapeOfFile(sheet.Beside(name)); !shape.ok()) {
        add_trouble(name, shape.status());
      }
    }
  }
}

// As Load, but a sheet that has not changed since is taken from the cache.
void LoadOnce(Sheet& sheet, SheetCache& cache) {
  std::error_code error;
  const auto written = fs::last_write_time(sheet.file.parent_path(), error);
  if (const auto kept = cache.find(sheet.file);
      !error && kept != cache.end() && kept->second.written == written) {
    sheet = kept->second.sheet;
    return;
  }
  Load(sheet);
  if (!error && fs::file_time_type::clock::now() - written > kSettled) {
    cache[sheet.file] = {written, sheet};
  }
}

}  // namespace

size_t Sheet::shown() const {
  const auto end =
      std::find_if(pictures.begin(), pictures.end(),
                   [](const EvaluatedPicture& picture) { return picture.picture.empty(); });
  return std::min(kPicturesMax, static_cast<size_t>(end - pictures.begin()));
}

std::string Sheet::TroubleOf(const std::string& name, const absl::Status& why) const {
  OXBOW_LOG(Warning) << "picture cannot be shown" << Field("file", Beside(name).string())
                     << Field("error", std::string(why.message()));
  return absl::StrCat("step ", step, ": ", name, ": ", std::string(why.message()));
}

bool Sheet::HasTrouble(const std::string& name) const {
  const std::string begin = absl::StrCat("step ", step, ": ", name, ": ");
  return std::any_of(trouble.begin(), trouble.end(),
                     [&](const std::string& line) { return line.starts_with(begin); });
}

std::vector<Sheet> SheetsOf(const fs::path& run_dir, SheetCache* cache) {
  std::vector<Sheet> found = Found(run_dir);
  std::vector<Sheet> sheets;
  const size_t count = std::min(found.size(), kSheetsMax);
  for (size_t i = 0; i < count; ++i) {
    Sheet& sheet = found[count == 1 ? 0 : i * (found.size() - 1) / (count - 1)];
    cache != nullptr ? LoadOnce(sheet, *cache) : Load(sheet);
    sheets.push_back(std::move(sheet));
  }
  return sheets;
}

std::optional<Sheet> SheetAt(const fs::path& run_dir, int64_t step) {
  std::vector<Sheet> found = Found(run_dir);
  const auto one = std::find_if(found.begin(), found.end(),
                                [&](const Sheet& sheet) { return sheet.step == step; });
  if (one == found.end()) return std::nullopt;
  Load(*one);
  return std::move(*one);
}

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
