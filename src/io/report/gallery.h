// SPDX-License-Identifier: Apache-2.0
// The pictures on a run's page: the first evaluation beside any later one, a strip of all of them,
// and rows that show one prompt over the steps. And the last pictures of several runs. A click on a
// picture opens it beside the same one of the other grids, at full size, with all that is known of
// it.
//
// Each sheet is in the page once, as the background of a class (s0, s1, ...); a picture is a part
// of it (p0, p1, ...). The pictures' own files are asked for by a click, and by the slider.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/report/sheets.h"

namespace oxbow::io {

struct SheetImage {
  std::string address;  // A data URI, or where it is served; empty: it cannot be shown.
  std::vector<std::string> trouble;
};
using SheetSource = std::function<SheetImage(const Sheet&, SpriteSize)>;

// A section for the page; says so where there is no sheet yet, and what cannot be shown. `failure`:
// why the run's last failed evaluation gave none; "": none failed.
std::string Gallery(const std::vector<Sheet>& sheets, const SheetSource& source, bool live,
                    const std::string& failure = "");

struct RunPictures {
  std::string name;
  Sheet last;
  std::string folder;  // Its files as seen from the page, with a slash at its end.
};

// A grid for each run; "" if there is none.
std::string GalleryOfRuns(const std::vector<RunPictures>& runs, const SheetSource& source);

// A prompt: a long one is cut after three lines until it is folded out.
std::string PromptText(const std::string& prompt);

}  // namespace oxbow::io
