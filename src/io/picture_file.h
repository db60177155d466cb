// SPDX-License-Identifier: Apache-2.0
// The files of an evaluation's pictures, samples/step_N/000.png, 001.png, ...: PNG up to 256
// pixels, JPEG of quality 95 above. A small video is an animated PNG. Of a larger one the file is
// its first frame, and 000.film.jpg beside it has the frames of which a page makes a film: one
// below the other, or side by side if they are higher than wide.
//
// Beside them the small pictures that replay entries carry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/image8.h"

namespace oxbow::io {

inline constexpr int kPngSideMax = 256;
inline constexpr int kPictureQuality = 95;
// All frames together: of an animated PNG, and of a larger video's film, which is drawn smaller
// where it would have more.
inline constexpr int64_t kStoredFilmPixelsMax = int64_t{1} << 17;
inline constexpr int64_t kFilmStripPixelsMax = int64_t{1} << 21;
inline constexpr int kFilmStripQuality = 80;

// The sheet beside pictures, which gives a view of them all; one of videos has kSheetPixelsMax.
inline constexpr int64_t kPictureSheetPixelsMax = int64_t{1} << 21;

struct PictureFile {
  std::string name;  // "007.jpg"
  std::string bytes;

  bool operator==(const PictureFile&) const = default;
};

// The file of picture `place` of `count`. Requires valid frames of one size, at least one.
PictureFile PictureFileOf(size_t place, size_t count, const std::vector<Image8>& frames);

// Whether the file of a video has all of its frames.
bool IsWholeFilm(int width, int height, int frames);

struct FilmStrip {
  PictureFile file;  // "007.film.jpg"
  int frames = 0;    // On it: every n-th of the video, kSheetFramesMax at most.
};

// The film of a video whose picture's file is one frame; absent of all others. Requirements as
// above.
std::optional<FilmStrip> FilmStripOf(size_t place, size_t count, const std::vector<Image8>& frames);

// The size of such a file of a photograph, about: a busy one takes half as much again.
uint64_t PictureBytesAbout(int64_t width, int64_t height, int64_t frames);

// The same of the sheet of so many, as a PNG and once more in TensorBoard's events.
uint64_t SheetBytesAbout(int64_t width, int64_t height, int64_t pictures);

inline constexpr size_t kPreviewBytesMax = size_t{64} << 10;

// A small file to look at, of at most kPreviewBytesMax: a JPEG whose longer side is 256 at most, or
// the PNG of a picture up to 32 pixels. Of a video the first, the middle and the last frame, side
// by side. Requires valid frames of one size, at least one.
std::string PreviewOf(const std::vector<Image8>& frames);

// Its size, about.
uint64_t PreviewBytesAbout(int64_t width, int64_t height, int64_t frames);

struct PictureFacts {
  int width = 0;
  int height = 0;
  std::string extension;  // "png", "jpg"
};

// Facts of a picture's file by its header. Absent if the bytes, which are not trusted, have none.
std::optional<PictureFacts> FactsOfPicture(std::string_view bytes);

}  // namespace oxbow::io
