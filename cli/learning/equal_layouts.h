// SPDX-License-Identifier: Apache-2.0
// Recipes at equal shares of two equally right layouts. A run that gives up one layout has less to
// learn and looks faster, so steps alone may say what a recipe does to layouts.
#pragma once

#include <string>

#include "cli/learning/learning_table.h"

namespace oxbow::cli {

// For every level of the comparison a table with a row per recipe: the mean share of the rarer
// layout where its runs reached the level (at their end, if they did not), and the ratio of steps
// to the baseline with what the shares explain taken off (DifferencesAtEqual in
// base/paired_statistics.h), with its 95 % bootstrap interval over pairs, which has the slope's
// uncertainty in it (sign flips of adjusted differences would not). Empty without levels, and where
// no layout was measured or no share differs.
std::string EqualLayoutTables(const Comparison& comparison);

}  // namespace oxbow::cli
