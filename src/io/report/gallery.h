// SPDX-License-Identifier: Apache-2.0
// The pictures on a run's page: the first evaluation beside any later one, a strip of all sheets,
// and rows that show one prompt over the steps.
//
// Every sheet is in the page once, as the background of a class (s0, s1, ...); a picture is a part
// of it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/report/run_facts.h"
#include "io/report/sheets.h"

namespace oxbow::io {

// Where the page finds a sheet: a data URI, or the address at which it is served.
using SheetSource = std::function<std::string(const Sheet&, bool large)>;

// A section for the page; says so where there is no sheet yet.
std::string Gallery(const std::vector<Sheet>& sheets, const SheetSource& source, bool live);

}  // namespace oxbow::io
