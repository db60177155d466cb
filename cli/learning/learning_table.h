// SPDX-License-Identifier: Apache-2.0
// The outcome of a comparison of recipes: a Markdown table, and a plot of the curves.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/report/learning_curve.h"

namespace oxbow::cli {

// The finished runs of one recipe.
struct RecipeCurves {
  std::string name;
  std::string note;
  std::vector<io::LearningCurve> curves;
  std::vector<uint32_t> seeds = {};  // Seeds of the curves; empty: their places.
  std::string grid = {};             // The recipe of whose grid this is a point, and which point.
  std::string point = {};
};

struct Comparison {
  std::string name;
  std::string baseline;  // One of `recipes`, with at least one curve.
  double level = 0;      // 0: the baseline's final reward, mean over its curves.
  std::vector<RecipeCurves> recipes;
  std::vector<double> levels = {};  // Fixed beforehand, for comparisons seed by seed.
};

// The level to reach; nothing if the baseline has no finished run.
std::optional<double> LevelOf(const Comparison& comparison);

// A row per recipe: how many runs reached the level and when, and ratios to the full length of the
// baseline's runs, with 95 % intervals. A run that never reached the level counts with its full
// cost, and the ratio is marked as a lower bound. Intervals are over the seeds that a recipe and
// the baseline have both finished; where the level is the baseline's final reward, its uncertainty
// is in them. Then the tables of grid_table.h, paired_table.h and equal_layouts.h.
std::string LearningTable(const Comparison& comparison);

// The mean held-out reward of each recipe over steps, with two standard errors over seeds, as a
// drawing; empty where no run is finished.
std::string LearningPlot(const Comparison& comparison);

// The same as a file of its own, learning.svg: of grids a chart for each point, with a line for
// each recipe.
std::string LearningPicture(const Comparison& comparison);

// The content of learning.html: `table`, that of learning.md, and the plot.
std::string LearningPage(const Comparison& comparison, const std::string& table);

}  // namespace oxbow::cli
