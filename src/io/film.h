// SPDX-License-Identifier: Apache-2.0
// Frames that people see one after the other: as an animated PNG, many on a contact sheet.
//
// An animated PNG (https://www.w3.org/TR/png-3/) is a PNG of its first frame with chunks between:
//
//   IHDR, acTL (frames, plays = 0: for ever), fcTL, IDAT.., {fcTL, fdAT..}.., IEND
//
// A reader that does not know them shows the first frame. All frames here are whole, and each
// replaces the one before.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/image8.h"
#include "io/image.h"

namespace oxbow::io {

// How long a frame is shown: a fraction of a second.
struct FrameTime {
  uint16_t numerator = 1;
  uint16_t denominator = 16;

  bool operator==(const FrameTime&) const = default;
};

// Frames of one size; one alone is a picture.
struct Film {
  std::vector<Image8> frames;
  FrameTime time = {};
};

// An animated PNG; of one frame the bytes of EncodePng. Requires valid frames of one size.
std::string EncodeFilm(const Film& film);

inline constexpr int64_t kFilmPixelsMax = int64_t{1} << 28;

// The frames of a PNG, animated as EncodeFilm does it or not at all. The bytes are not trusted:
// kInvalidArgument if they are no PNG, animated with parts of frames, or have more than
// `pixels_max` pixels in all frames; kDataLoss if they are truncated or corrupt.
absl::StatusOr<Film> DecodeFilm(std::string_view bytes, int64_t pixels_max = kFilmPixelsMax);

// A JPEG, too, by the first bytes.
absl::StatusOr<Film> DecodePictureOrFilm(std::string_view bytes,
                                         int64_t pixels_max = kFilmPixelsMax);

struct FilmCell {
  std::vector<Image8> frames;    // All of one size.
  std::optional<Colour> border;  // As GridCell::frame.
  std::string label;
};

inline constexpr int kSheetFramesMax = 24;
inline constexpr int64_t kSheetPixelsMax = int64_t{1} << 23;  // All frames of a sheet together.

// Grid, frame by frame: of the longest video's frames every n-th, so that there are at most
// kSheetFramesMax, shown n times as long; a shorter video stays at its last frame. Pictures alone
// are one frame, the sheet of Grid. What would have more than `pixels_max` pixels in all frames is
// drawn smaller.
Film FilmGrid(const std::vector<FilmCell>& cells, const GridOptions& options = {},
              int64_t pixels_max = kSheetPixelsMax);

// The picture with a longer side of `side`: each pixel is the mean of what it covers. A picture
// that is no larger stays as it is.
Image8 Shrink(const Image8& image, int side);

}  // namespace oxbow::io
