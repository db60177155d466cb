// SPDX-License-Identifier: Apache-2.0
// All pictures of an evaluation on one image for a page, which shows parts of it: kSpriteColumns in
// a row, without gaps, all of one size. Small enough that the page stays small; the pictures' own
// files show more.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/report/sheets.h"

namespace oxbow::io {

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
