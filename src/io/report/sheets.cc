// SPDX-License-Identifier: Apache-2.0
#include "io/report/sheets.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/file.h"
#include "io/film.h"
#include "io/image.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSheetFileBytesMax = 256 << 20;
constexpr uint64_t kCaptionBytesMax = 1 << 16;
constexpr int kJpegQuality = 80;
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

// A sheet is written within a moment, file by file.
constexpr std::chrono::seconds kSettled{2};

bool Load(Sheet& sheet) {
  const auto png = ReadFile(sheet.file, kSheetFileBytesMax);
  if (!png.ok()) return false;
  const auto shape = ShapeOfPng(*png);
  if (!shape.ok()) return false;
  sheet.width = shape->width;
  sheet.height = shape->height;
  if (auto text = ReadFile(fs::path(sheet.file).replace_extension("txt"), kCaptionBytesMax);
      text.ok()) {
    sheet.caption = *std::move(text);
  }
  if (auto pictures = ReadEvaluation(sheet.file.parent_path() / kEvaluationFile); pictures.ok()) {
    sheet.pictures = *std::move(pictures);
  }
  return true;
}

// As Load, but a sheet that has not changed since is taken from the cache.
bool LoadOnce(Sheet& sheet, SheetCache& cache) {
  std::error_code error;
  const auto written = fs::last_write_time(sheet.file.parent_path(), error);
  if (error) return false;
  if (const auto kept = cache.find(sheet.file);
      kept != cache.end() && kept->second.written == written) {
    sheet = kept->second.sheet;
    return true;
  }
  if (!Load(sheet)) return false;
  if (fs::file_time_type::clock::now() - written > kSettled) cache[sheet.file] = {written, sheet};
  return true;
}

std::string SmallJpeg(const std::string& png, size_t bytes_max) {
  const auto film = DecodeFilm(png);
  if (!film.ok()) return "";
  std::string smallest;
  for (const int n : {1, 2, 3, 4, 6, 8, 12, 16}) {
    smallest =
        EncodeJpeg(n == 1 ? film->frames.front() : Shrink(film->frames.front(), n), kJpegQuality);
    if (smallest.size() <= bytes_max) break;
  }
  return smallest;
}

}  // namespace

size_t Sheet::shown() const {
  const auto end = std::find_if(pictures.begin(), pictures.end(),
                                [](const EvaluatedPicture& picture) { return !picture.on_sheet; });
  return static_cast<size_t>(end - pictures.begin());
}

Box Sheet::BoxOf(size_t i) const {
  OXBOW_CHECK(i < shown()) << "picture " << i << " of a sheet of " << shown();
  const GridOptions grid;
  const int columns = std::min(grid.columns, static_cast<int>(shown()));
  const int rows = (static_cast<int>(shown()) + columns - 1) / columns;
  const int cell_width = (width - grid.gap) / columns - grid.gap;
  const int cell_height = (height - grid.gap) / rows - grid.gap;
  const EvaluatedPicture& picture = pictures[i];
  double tall = cell_height;  // The rest of the cell, above, is its label.
  if (picture.width > 0 && picture.height > 0) {
    // A sheet has frames once a picture was right.
    const bool framed = std::any_of(pictures.begin(), pictures.end(),
                                    [](const auto& one) { return one.right.value_or(false); });
    const int frame = framed ? 2 * grid.frame_width : 0;
    tall =
        std::min(tall, frame + std::round((cell_width - frame) * picture.height / picture.width));
  }
  const auto place = static_cast<int>(i);
  const int column = place % columns, row = place / columns;
  Box box;
  box.x = grid.gap + column * (cell_width + grid.gap);
  box.y = grid.gap + row * (cell_height + grid.gap) + cell_height - tall;
  box.width = cell_width;
  box.height = tall;
  return box;
}

std::vector<Sheet> SheetsOf(const fs::path& run_dir, SheetCache* cache) {
  std::vector<Sheet> found = Found(run_dir);
  std::vector<Sheet> sheets;
  const size_t count = std::min(found.size(), kSheetsMax);
  for (size_t i = 0; i < count; ++i) {
    Sheet& sheet = found[count == 1 ? 0 : i * (found.size() - 1) / (count - 1)];
    if (cache != nullptr ? LoadOnce(sheet, *cache) : Load(sheet))
      sheets.push_back(std::move(sheet));
  }
  return sheets;
}

std::optional<Sheet> SheetAt(const fs::path& run_dir, int64_t step) {
  const std::vector<Sheet> found = Found(run_dir);
  const auto one = std::find_if(found.begin(), found.end(),
                                [&](const Sheet& sheet) { return sheet.step == step; });
  if (one == found.end()) return std::nullopt;
  return *one;
}

SheetFile FitSheet(const Sheet& sheet, size_t bytes_max) {
  auto png = ReadFile(sheet.file, kSheetFileBytesMax);
  if (!png.ok()) return {};
  if (png->size() <= bytes_max) return {"image/png", *std::move(png)};
  const fs::path kept = sheet.file.parent_path() /
                        (bytes_max > kSmallSheetBytes ? "eval.large.jpg" : "eval.small.jpg");
  if (auto jpeg = ReadFile(kept, bytes_max); jpeg.ok()) return {"image/jpeg", *std::move(jpeg)};
  std::string jpeg = SmallJpeg(*png, bytes_max);
  if (jpeg.empty()) return {};
  // A page without it is as good, only slower to make.
  WriteFileAtomically(kept, jpeg).IgnoreError();
  return {"image/jpeg", std::move(jpeg)};
}

std::string SheetUri(const Sheet& sheet, size_t bytes_max) {
  const SheetFile file = FitSheet(sheet, bytes_max);
  return absl::StrCat("data:", file.type, ";base64,", absl::Base64Escape(file.bytes));
}

}  // namespace oxbow::io
