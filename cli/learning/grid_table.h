// SPDX-License-Identifier: Apache-2.0
// Recipes that ran with several values of a setting, such as learning rates: where each still
// learns.
#pragma once

#include <string>

#include "cli/learning/learning_table.h"

namespace oxbow::cli {

// Tables for each set of recipes whose grids have the same points: a row per grid, a column per
// point, mean and standard error over seeds, of the held-out reward at the end and of the steps to
// each level. Then the mean over all points: its difference to the grid of the baseline, over seeds
// that both have finished at every point, and p of sign flips. So a recipe is judged on the whole
// row. Last the same difference where each has the point that suits it best. Empty where no recipe
// has a grid.
std::string GridTables(const Comparison& comparison);

}  // namespace oxbow::cli
