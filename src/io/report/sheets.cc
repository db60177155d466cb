// SPDX-License-Identifier: Apache-2.0
#include "io/report/sheets.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "io/image.h"

namespace oxbow::io {
namespace {

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

}  // namespace oxbow::io
