// SPDX-License-Identifier: Apache-2.0
// Grids of an evaluation's pictures on a page, with their prompts and marks. A click on a picture
// opens it beside the same one of the other grids, at full size, with all that is known of it.
//
// Each sheet is in the page once, as the background of a class (s0, s1, ...); a picture is a part
// of it (p0, p1, ...). The pictures' own files are asked for by a click, and by the slider.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "io/report/sheets.h"
#include "io/report/sprite.h"

namespace oxbow::io {

struct SheetImage {
  std::string address;  // A data URI, or where it is served; empty: it cannot be shown.
  std::vector<std::string> trouble;
};
using SheetSource = std::function<SheetImage(const Sheet&, SpriteSize)>;

// A sheet at a place on a page.
struct PlacedSheet {
  const Sheet* sheet;
  SpriteSize size = SpriteSize::kLarge;
  // The folder of its files as seen from the page, with a slash at its end.
  std::string folder;
  bool marked = false;  // Marks say right or wrong in place of the reward.
};

// "samples/step_000010/"
std::string FolderOf(const Sheet& sheet);

// Pictures above this are shown large.
inline constexpr int kLargeSide = 128;
bool IsLarge(const Sheet& sheet);

// Whether some picture is right: those of this run's reward can be.
bool AnyRight(const std::vector<PlacedSheet>& sheets);

// A line for each thing that cannot be shown.
std::string TroubleLines(const std::vector<std::string>& trouble);

// The style of the sheets, the data that the page's script needs, and the lines of `trouble` and of
// what the source has found. Their grids follow it.
std::string PlaceSheets(const std::vector<PlacedSheet>& sheets, const SheetSource& source,
                        std::vector<std::string> trouble);

// A figure with the pictures of sheet `place`, each with its prompt and mark; or the whole sheet.
// `heading` is text.
std::string View(const PlacedSheet& placed, size_t place, std::string_view heading);

// The button that shows what the grids keep folded; "" where nothing is.
std::string MoreButton(const Sheet& sheet);

// A picture alone, of sheet `place`.
std::string Part(const PlacedSheet& placed, size_t place, size_t picture);

// A prompt: a long one is cut after three lines until it is folded out.
std::string PromptText(const std::string& prompt);

}  // namespace oxbow::io
