// SPDX-License-Identifier: Apache-2.0
// The evaluations of a run that have pictures: what lies under samples/, and all of one evaluation
// on one image for a page.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "io/evaluation_file.h"

namespace oxbow::io {

inline constexpr size_t kSheetsMax = 100;  // On a page; of more, these many are chosen evenly.

inline constexpr size_t kPicturesMax = 1024;

struct Sheet {
  int64_t step = 0;
  std::filesystem::path file;  // eval.png; the pictures' files lie beside it.
  std::string caption;
  int width = 0;  // That of eval.png, in pixels; 0: it cannot be read.
  int height = 0;
  std::vector<EvaluatedPicture> pictures;  // Empty where the evaluation wrote none.
  // The parts that cannot be shown and why, a line each: "step 20: 003.jpg is not there".
  std::vector<std::string> trouble;

  // How many of `pictures` have a file, kPicturesMax at most; they are its first ones.
  size_t shown() const;
  // Whether there is anything to look at.
  bool visible() const { return shown() > 0 || width > 0; }
  // A line for `trouble` about one of its files, which it also logs.
  std::string TroubleOf(const std::string& name, const absl::Status& why) const;
  bool HasTrouble(const std::string& name) const;
  // A file of this evaluation.
  std::filesystem::path Beside(const std::string& name) const { return file.parent_path() / name; }
};

// Sheets that were read, by file: for a reader that comes again. One whose directory was written to
// since, or within the last seconds, is read again.
struct KeptSheet {
  std::filesystem::file_time_type written;
  Sheet sheet;
};
using SheetCache = std::map<std::filesystem::path, KeptSheet>;

// The sheets of the run by step, at most kSheetsMax, always the first and the last. Looks at the
// beginning and the end of each file alone; what is wrong there is in `trouble`, and logged.
std::vector<Sheet> SheetsOf(const std::filesystem::path& run_dir, SheetCache* cache = nullptr);

// The sheet of one step, not from a cache; absent if there is none.
std::optional<Sheet> SheetAt(const std::filesystem::path& run_dir, int64_t step);

// All pictures of an evaluation on one image for a page, which shows parts of it: kSpriteColumns in
// a row, without gaps, all of one size. Small enough that the page stays small; the pictures' own
// files show more.
inline constexpr int kSpriteColumns = 8;

enum class SpriteSize {
  kSmall,   // For a strip of all evaluations.
  kMiddle,  // For a row of a table.
  kLarge,   // For a grid of pictures.
};

size_t SpriteBytesMax(SpriteSize size);

// "small", "middle", "large"
const char* SpriteName(SpriteSize size);

struct Sprite {
  std::string type;   // "image/png", "image/jpeg"
  std::string bytes;  // Empty: nothing of it can be shown.
  // As Sheet::trouble: what could not be decoded. Its place has a cross.
  std::vector<std::string> trouble;
};

// In at most SpriteBytesMax, or `bytes_max` if that is less: as a PNG without loss, animated for
// videos, where it is small enough, else as a JPEG of pictures that are as large as fit. A sheet
// without pictures' files is itself the only picture. A small or middle one is kept beside the
// sheet, so that it is made once.
Sprite SpriteOf(const Sheet& sheet, SpriteSize size, size_t bytes_max = SIZE_MAX);

// The same as a data URI.
std::string DataUri(const Sprite& sprite);

}  // namespace oxbow::io
