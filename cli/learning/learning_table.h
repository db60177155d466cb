// The outcome of a comparison of recipes: a Markdown table, and a picture of the curves.
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
};

struct Comparison {
  std::string name;
  std::string baseline;  // One of `recipes`, with at least one curve.
  double level = 0;      // 0: the baseline's final reward, mean over its curves.
  std::vector<RecipeCurves> recipes;
};

// The level that counts; nothing if the baseline has no finished run.
std::optional<double> LevelOf(const Comparison& comparison);

// A row per recipe: how many runs reached the level and when, and ratios to the baseline's whole
// runs with 95 % intervals. A run that never reached it counts with all it took, and the ratio is
// marked as a lower bound.
std::string LearningTable(const Comparison& comparison);

// The mean held-out reward of each recipe over steps, as an SVG document.
std::string LearningPlot(const Comparison& comparison);

}  // namespace oxbow::cli
