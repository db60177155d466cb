// SPDX-License-Identifier: Apache-2.0
#include "examples/worlds/clips.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/first_part.h"

namespace oxbow::worlds {
namespace {

constexpr std::string_view kClipPrefix = "clip ";

}  // namespace

ClipPlace PlaceOf(int layout, int frame) {
  OXBOW_CHECK(layout >= 0 && layout < kClipLayouts && frame >= 0 && frame < kClipFrames)
      << "layout " << layout << ", frame " << frame;
  const bool from_left = layout < kClipLayouts / 2;
  const int behind = from_left ? frame : kClipFrames - 1 - frame;  // Steps from the left end.
  return {.column = kClipMargin + kClipStep * behind, .row = layout % 2};
}

std::array<float, kFramePixels> RenderFrame(const ClipNumber& number, const ClipPlace& place) {
  OXBOW_CHECK(place.column >= 0 && place.column < kClipColumns) << "column " << place.column;
  std::array<float, kFramePixels> frame;
  frame.fill(-1.0F);
  for (int i = 0; i < kClipDigits; ++i) {
    const int left = place.column + i * (kGlyphWidth + 1);
    for (int row = 0; row < kClipHeight; ++row) {
      for (int column = 0; column < kGlyphWidth; ++column) {
        if (GlyphWhite(number[i], place.row, row, column)) {
          frame[row * kClipWidth + left + column] = 1.0F;
        }
      }
    }
  }
  return frame;
}

std::array<float, kClipPixels> RenderClip(const ClipNumber& number, int layout) {
  std::array<float, kClipPixels> clip;
  auto* out = clip.begin();
  for (int frame = 0; frame < kClipFrames; ++frame) {
    const auto pixels = RenderFrame(number, PlaceOf(layout, frame));
    out = std::copy(pixels.begin(), pixels.end(), out);
  }
  return clip;
}

absl::StatusOr<ClipNumber> ParseClipPrompt(std::string_view text) {
  const auto refuse = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt is not \"clip\" and two digits, as \"clip 47\": ",
                     FirstPart(std::string(text), 80)));
  };
  if (text.size() != kClipPrefix.size() + kClipDigits || !text.starts_with(kClipPrefix))
    return refuse();
  ClipNumber number;
  for (int i = 0; i < kClipDigits; ++i) {
    const char c = text[kClipPrefix.size() + i];
    if (c < '0' || c > '9') return refuse();
    number[i] = c - '0';
  }
  return number;
}

}  // namespace oxbow::worlds
