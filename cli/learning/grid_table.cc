// SPDX-License-Identifier: Apache-2.0
#include "cli/learning/grid_table.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/paired_statistics.h"
#include "base/statistics.h"
#include "cli/learning/mean_text.h"

namespace oxbow::cli {
namespace {

// The points of one recipe's grid, in the plan's order.
struct Grid {
  std::string name;
  std::vector<std::string> points;
  std::vector<const RecipeCurves*> curves;  // By point.
};

std::vector<Grid> GridsOf(const Comparison& comparison) {
  std::vector<Grid> grids;
  for (const RecipeCurves& recipe : comparison.recipes) {
    if (recipe.grid.empty()) continue;
    if (grids.empty() || grids.back().name != recipe.grid) grids.push_back({.name = recipe.grid});
    grids.back().points.push_back(recipe.point);
    grids.back().curves.push_back(&recipe);
  }
  return grids;
}

// A number that a table compares; of a run without the number, nothing.
struct Measure {
  std::string title;
  int digits;
  std::function<std::optional<double>(const io::LearningCurve&)> of;
  bool more_is_better;
};

using BySeed = std::map<uint32_t, double>;

BySeed ValuesOf(const RecipeCurves& recipe, const Measure& measure) {
  BySeed values;
  for (size_t i = 0; i < recipe.curves.size() && i < recipe.seeds.size(); ++i) {
    const std::optional<double> value = measure.of(recipe.curves[i]);
    if (value.has_value() && std::isfinite(*value)) values[recipe.seeds[i]] = *value;
  }
  return values;
}

std::vector<double> Values(const BySeed& by_seed) {
  std::vector<double> values;
  for (const auto& [seed, value] : by_seed) values.push_back(value);
  return values;
}

// The mean over all points, of seeds that have finished at every one.
BySeed RowMeans(const Grid& grid, const Measure& measure) {
  std::map<uint32_t, std::vector<double>> of_seed;
  for (const RecipeCurves* const recipe : grid.curves) {
    for (const auto& [seed, value] : ValuesOf(*recipe, measure)) of_seed[seed].push_back(value);
  }
  BySeed means;
  for (const auto& [seed, values] : of_seed) {
    if (values.size() == grid.curves.size()) means[seed] = Mean(values);
  }
  return means;
}

// The point with the best mean; nothing without a finished run.
std::optional<size_t> BestPoint(const Grid& grid, const Measure& measure) {
  std::optional<size_t> best;
  double best_mean = 0;
  for (size_t i = 0; i < grid.curves.size(); ++i) {
    const std::vector<double> values = Values(ValuesOf(*grid.curves[i], measure));
    if (values.empty()) continue;
    const double mean = Mean(values);
    const bool better = measure.more_is_better ? mean > best_mean : mean < best_mean;
    if (best.has_value() && !better) continue;
    best = i;
    best_mean = mean;
  }
  return best;
}

// Over seeds that both have.
std::vector<double> DifferencesOf(const BySeed& ours, const BySeed& theirs) {
  std::vector<double> differences;
  for (const auto& [seed, value] : ours) {
    const auto other = theirs.find(seed);
    if (other != theirs.end()) differences.push_back(value - other->second);
  }
  return differences;
}

// " +0.120 (8 seeds) | 0.0078 |"
std::string Difference(const BySeed& ours, const BySeed& theirs, int digits) {
  const std::vector<double> differences = DifferencesOf(ours, theirs);
  if (differences.empty()) return " - | - |";
  return absl::StrFormat(" %+.*f (%d seeds) | %.3g |", digits, Mean(differences),
                         differences.size(), SignFlipP(differences));
}

std::string RowOf(const Grid& grid, const Grid& baseline, const Measure& measure) {
  std::string row = absl::StrCat("| ", grid.name, " |");
  for (const RecipeCurves* const recipe : grid.curves) {
    absl::StrAppend(&row, " ", MeanText(Values(ValuesOf(*recipe, measure)), measure.digits), " |");
  }
  const BySeed means = RowMeans(grid, measure);
  absl::StrAppend(&row, " ", MeanText(Values(means), measure.digits), " |");
  const std::optional<size_t> best = BestPoint(grid, measure);
  const std::optional<size_t> best_of_baseline = BestPoint(baseline, measure);
  const std::string best_name = best.has_value() ? grid.points[*best] : "-";
  if (grid.name == baseline.name || !best.has_value() || !best_of_baseline.has_value()) {
    return absl::StrCat(row, " | | ", best_name, " | | |\n");
  }
  return absl::StrCat(
      row, Difference(means, RowMeans(baseline, measure), measure.digits), " ", best_name, " |",
      Difference(ValuesOf(*grid.curves[*best], measure),
                 ValuesOf(*baseline.curves[*best_of_baseline], measure), measure.digits),
      "\n");
}

// A row of the differences at single points, each with its p; nothing for another row of points.
std::string PointsRowOf(const Grid& grid, const Grid& baseline, const Measure& measure) {
  if (grid.name == baseline.name || grid.points != baseline.points) return "";
  std::string row = "| difference, p |";
  for (size_t i = 0; i < grid.curves.size(); ++i) {
    const std::vector<double> differences =
        DifferencesOf(ValuesOf(*grid.curves[i], measure), ValuesOf(*baseline.curves[i], measure));
    absl::StrAppend(&row, differences.empty()
                              ? " - |"
                              : absl::StrFormat(" %+.*f, %.2g |", measure.digits, Mean(differences),
                                                SignFlipP(differences)));
  }
  return absl::StrCat(row, " | | | | | |\n");
}

std::string TableOf(const std::vector<const Grid*>& grids, const Grid& baseline,
                    const Measure& measure) {
  std::string head = absl::StrCat("| ", measure.title, " |"), line = "\n|---|";
  for (const std::string& point : baseline.points) {
    absl::StrAppend(&head, " ", point, " |");
    line += "---|";
  }
  std::string table = absl::StrCat(
      "\n", head, " mean of the row | difference | p | best | difference at the best | p |", line,
      "---|---|---|---|---|---|\n");
  for (const Grid* const grid : grids) {
    absl::StrAppend(&table, RowOf(*grid, baseline, measure), PointsRowOf(*grid, baseline, measure));
  }
  return table;
}

// The reward at the end, and for each level the steps to it. A run that never got there counts with
// all its steps.
std::vector<Measure> MeasuresOf(const Comparison& comparison) {
  std::vector<Measure> measures = {
      {"held-out reward at the end", 3,
       [](const io::LearningCurve& curve) { return std::optional(curve.final_reward); }, true}};
  for (const double level : comparison.levels) {
    measures.push_back({absl::StrFormat("steps to %g", level), 1,
                        [level](const io::LearningCurve& curve) -> std::optional<double> {
                          if (curve.points.empty()) return std::nullopt;
                          return io::Reached(curve, level).value_or(curve.points.back()).step;
                        },
                        false});
  }
  return measures;
}

std::string TablesOf(const std::vector<const Grid*>& grids, const Grid& baseline,
                     const Comparison& comparison) {
  std::string text = absl::StrCat(
      "\nBy point of a grid, mean and standard error over seeds. Differences are to ",
      baseline.name,
      ", seed by seed, with p of sign flips: of each point, of the means over all points, and of "
      "the point that is best for the one to the point that is best for the other, both chosen on "
      "these runs. A run "
      "that never reached a level counts with all its steps.\n");
  for (const Measure& measure : MeasuresOf(comparison)) text += TableOf(grids, baseline, measure);
  return text;
}

}  // namespace

std::string GridTables(const Comparison& comparison) {
  const std::vector<Grid> grids = GridsOf(comparison);
  std::string text;
  std::vector<std::vector<std::string>> done;
  for (const Grid& first : grids) {
    if (std::find(done.begin(), done.end(), first.points) != done.end()) continue;
    done.push_back(first.points);
    std::vector<const Grid*> alike;
    const Grid* baseline = &first;
    for (const Grid& grid : grids) {
      if (grid.points != first.points) continue;
      alike.push_back(&grid);
      for (const RecipeCurves* const recipe : grid.curves) {
        if (recipe->name == comparison.baseline) baseline = &grid;
      }
    }
    text += TablesOf(alike, *baseline, comparison);
  }
  return text;
}

}  // namespace oxbow::cli
