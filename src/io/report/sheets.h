// SPDX-License-Identifier: Apache-2.0
// The pictures of a run's evaluations: the sheet files under samples/, small enough that the page
// stays small, and where each picture is on its sheet.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/evaluation_file.h"

namespace oxbow::io {

inline constexpr size_t kSheetsMax = 100;  // On a page; of more, these many are chosen evenly.
inline constexpr size_t kSmallSheetBytes = 16 << 10;
inline constexpr size_t kLargeSheetBytes = 256 << 10;  // The first and the last.

// A part of a sheet, in its pixels.
struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

struct Sheet {
  int64_t step = 0;
  std::filesystem::path file;  // eval.png.
  std::string caption;
  int width = 0;  // That of eval.png, in pixels.
  int height = 0;
  std::vector<EvaluatedPicture> pictures;  // Empty where the evaluation wrote none.

  // How many of `pictures` are on the sheet; they are its first ones.
  size_t shown() const;
  // Where picture `i` is, without its label. Requires i < shown().
  Box BoxOf(size_t i) const;
};

// Sheets that were read, by file: for a reader that comes again. One whose directory was written to
// since, or within the last seconds, is read again.
struct KeptSheet {
  std::filesystem::file_time_type written;
  Sheet sheet;
};
using SheetCache = std::map<std::filesystem::path, KeptSheet>;

// The sheets of the run by step, at most kSheetsMax, always the first and the last. What cannot be
// read is left out.
std::vector<Sheet> SheetsOf(const std::filesystem::path& run_dir, SheetCache* cache = nullptr);

// The file of the sheet of one step, alone; absent if there is none.
std::optional<Sheet> SheetAt(const std::filesystem::path& run_dir, int64_t step);

struct SheetFile {
  std::string type;   // "image/png"
  std::string bytes;  // Empty: the sheet cannot be read.
};

// The sheet in at most `bytes_max`: as it is, or its first frame as a JPEG that is small enough, if
// one can be. A JPEG is kept beside the sheet, so that it is made once.
SheetFile FitSheet(const Sheet& sheet, size_t bytes_max);

// The same as a data URI.
std::string SheetUri(const Sheet& sheet, size_t bytes_max);

}  // namespace oxbow::io
