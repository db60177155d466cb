// SPDX-License-Identifier: Apache-2.0
// Recipes against the baseline seed by seed, at rewards fixed beforehand
// (base/paired_statistics.h).
#pragma once

#include <optional>
#include <string>

#include "base/paired_statistics.h"
#include "cli/learning/learning_table.h"

namespace oxbow::cli {

// For every level of the comparison a table with a row per recipe, of the seeds that it and the
// baseline have finished: what it cost to reach the level, as a ratio to what it cost the baseline
// to reach the same level. Intervals are 95 % bootstraps over seeds, p is of sign flips of the
// differences. A run that never reached the level counts with all it took, and says so: `>=` where
// it was the recipe's, `<=` the baseline's, `~` both. Empty without levels.
std::string PairedTables(const Comparison& comparison);

// Held-out reward at the end by value of `eval.by`, and what it cost to reach the first level on
// the value that began lowest. Empty where nothing was measured by value.
std::string DifficultyTable(const Comparison& comparison);

// mean(recipe) / mean(baseline) of a cost over common seeds, with its interval. With a level of 0
// it is the baseline's own final reward, estimated in every resample, and the ratio is to
// whole runs of the baseline. Nothing where a cost was not logged.
std::optional<RatioInterval> CostRatio(const RecipeCurves& recipe, const RecipeCurves& baseline,
                                       double level, double io::CurvePoint::*cost,
                                       bool to_whole_runs);

}  // namespace oxbow::cli
