// SPDX-License-Identifier: Apache-2.0
#include "cli/learning/grid_table.h"

#include <algorithm>
#include <cmath>
#include <map>
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

// Reward at the end by seed.
std::map<uint32_t, double> Ends(const RecipeCurves& recipe) {
  std::map<uint32_t, double> ends;
  for (size_t i = 0; i < recipe.curves.size() && i < recipe.seeds.size(); ++i) {
    const double reward = recipe.curves[i].final_reward;
    if (std::isfinite(reward)) ends[recipe.seeds[i]] = reward;
  }
  return ends;
}

std::vector<double> Values(const std::map<uint32_t, double>& by_seed) {
  std::vector<double> values;
  for (const auto& [seed, value] : by_seed) values.push_back(value);
  return values;
}

// The mean over all points, of seeds that have finished at every one.
std::map<uint32_t, double> RowMeans(const Grid& grid) {
  std::map<uint32_t, std::vector<double>> rewards;
  for (const RecipeCurves* const recipe : grid.curves) {
    for (const auto& [seed, reward] : Ends(*recipe)) rewards[seed].push_back(reward);
  }
  std::map<uint32_t, double> means;
  for (const auto& [seed, of] : rewards) {
    if (of.size() == grid.curves.size()) means[seed] = Mean(of);
  }
  return means;
}

// " | +0.120 (8 seeds) | 0.0078", nothing to compare with where `grid` is the baseline's.
std::string Difference(const Grid& grid, const Grid& baseline) {
  if (grid.name == baseline.name) return " | | |\n";
  const std::map<uint32_t, double> ours = RowMeans(grid), theirs = RowMeans(baseline);
  std::vector<double> differences;
  for (const auto& [seed, mean] : ours) {
    const auto other = theirs.find(seed);
    if (other != theirs.end()) differences.push_back(mean - other->second);
  }
  if (differences.empty()) return " | - | - |\n";
  return absl::StrFormat(" | %+.3f (%d seeds) | %.3g |\n", Mean(differences), differences.size(),
                         SignFlipP(differences));
}

std::string TableOf(const std::vector<const Grid*>& grids, const Grid& baseline) {
  std::string head = "| held-out reward at the end |", line = "\n|---|";
  for (const std::string& point : baseline.points) {
    absl::StrAppend(&head, " ", point, " |");
    line += "---|";
  }
  std::string table = absl::StrCat(
      "\nBy point of a grid, mean and standard error over seeds. The difference of the means over "
      "all "
      "points is to ",
      baseline.name, ", seed by seed, with p of sign flips.\n\n", head,
      " mean of the row | difference | p |", line, "---|---|---|\n");
  for (const Grid* const grid : grids) {
    absl::StrAppend(&table, "| ", grid->name, " |");
    for (const RecipeCurves* const recipe : grid->curves) {
      absl::StrAppend(&table, " ", MeanText(Values(Ends(*recipe))), " |");
    }
    absl::StrAppend(&table, " ", MeanText(Values(RowMeans(*grid))), Difference(*grid, baseline));
  }
  return table;
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
    text += TableOf(alike, *baseline);
  }
  return text;
}

}  // namespace oxbow::cli
