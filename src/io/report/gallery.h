// SPDX-License-Identifier: Apache-2.0
// The pictures on a run's page: the first evaluation beside any later one, a strip of all of them,
// and rows that show one prompt over the steps. And the last pictures of several runs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "io/report/picture_grid.h"
#include "io/report/sheets.h"

namespace oxbow::io {

// A section for the page; says so where there is no sheet yet, and what cannot be shown. `failure`:
// why the run's last failed evaluation gave none; "": none failed.
std::string Gallery(const std::vector<Sheet>& sheets, const SheetSource& source, bool live,
                    const std::string& failure = "");

struct RunPictures {
  std::string name;
  Sheet last;
  std::string folder;  // As PlacedSheet::folder.
};

// A grid for each run; "" if there is none.
std::string GalleryOfRuns(const std::vector<RunPictures>& runs, const SheetSource& source);

}  // namespace oxbow::io
