// SPDX-License-Identifier: Apache-2.0
// The files of an evaluation's pictures, samples/step_N/000.png, 001.png, ...: PNG up to 256
// pixels, JPEG of quality 95 above. A small video is an animated PNG, a larger one its first frame.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/image8.h"

namespace oxbow::io {

inline constexpr int kPngSideMax = 256;
inline constexpr int kPictureQuality = 95;
inline constexpr int64_t kStoredFilmPixelsMax = int64_t{1} << 17;  // All frames together.

// The sheet beside pictures, which gives a view of them all; one of videos has kSheetPixelsMax.
inline constexpr int64_t kPictureSheetPixelsMax = int64_t{1} << 21;

struct PictureFile {
  std::string name;  // "007.jpg"
  std::string bytes;

  bool operator==(const PictureFile&) const = default;
};

// The file of picture `place` of `count`. Requires valid frames of one size, at least one.
PictureFile PictureFileOf(size_t place, size_t count, const std::vector<Image8>& frames);

// What a file like that takes of a photograph, about: a busy one takes half as much again.
uint64_t PictureBytesAbout(int64_t width, int64_t height, int64_t frames);

// The same of the sheet of so many, as a PNG and once more in TensorBoard's events.
uint64_t SheetBytesAbout(int64_t width, int64_t height, int64_t pictures);

}  // namespace oxbow::io
