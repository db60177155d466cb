// SPDX-License-Identifier: Apache-2.0
#include "cli/learning/equal_layouts.h"

#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/paired_statistics.h"
#include "base/statistics.h"
#include "cli/learning/paired_runs.h"

namespace oxbow::cli {
namespace {

// Where a run, which has points, reached the level; else its end.
double ShareOf(const io::LearningCurve& curve, double level) {
  return io::TrailingMinority(curve,
                              io::PlaceReached(curve, level).value_or(curve.points.size() - 1));
}

std::vector<ExplainedPair> Explained(const RecipeCurves& recipe, const RecipeCurves& baseline,
                                     double level) {
  std::vector<ExplainedPair> explained;
  for (const PairedRuns& pair : PairsOf(recipe, baseline)) {
    const ExplainedPair one{.cost = ReachedOrLast(*pair.recipe, level).step,
                            .baseline_cost = ReachedOrLast(*pair.baseline, level).step,
                            .covariate = ShareOf(*pair.recipe, level),
                            .baseline_covariate = ShareOf(*pair.baseline, level)};
    if (std::isfinite(one.covariate) && std::isfinite(one.baseline_covariate))
      explained.push_back(one);
  }
  return explained;
}

std::optional<double> RatioAtEqual(const std::vector<ExplainedPair>& pairs) {
  double baseline = 0;
  for (const ExplainedPair& pair : pairs) baseline += pair.baseline_cost;
  if (baseline <= 0) return std::nullopt;
  double more = 0;
  for (const double difference : DifferencesAtEqual(pairs)) more += difference;
  return 1 + more / baseline;
}

std::string Row(const RecipeCurves& recipe, const RecipeCurves& baseline, double level) {
  const std::vector<ExplainedPair> pairs = Explained(recipe, baseline, level);
  if (pairs.empty()) return "";
  std::vector<double> shares;
  for (const ExplainedPair& pair : pairs) shares.push_back(pair.covariate);
  const std::string row = absl::StrFormat("| %s | %.3f |", recipe.name, Mean(shares));
  if (&recipe == &baseline) return row + " 1 |\n";
  const auto interval = BootstrapInterval(pairs.size(), [&](const std::vector<size_t>& items) {
    std::vector<ExplainedPair> drawn;
    for (const size_t item : items) drawn.push_back(pairs[item]);
    return RatioAtEqual(drawn);
  });
  if (!interval.has_value()) return row + " - |\n";
  return absl::StrFormat("%s %.2f (%.2f to %.2f) |\n", row, interval->ratio, interval->low,
                         interval->high);
}

// Whether some run has both layouts: of a task with one layout, each share is 0.
bool HasShares(const Comparison& comparison) {
  for (const RecipeCurves& recipe : comparison.recipes) {
    for (const io::LearningCurve& curve : recipe.curves) {
      for (const io::CurvePoint& point : curve.points) {
        if (point.minority > 0) return true;
      }
    }
  }
  return false;
}

}  // namespace

std::string EqualLayoutTables(const Comparison& comparison) {
  const RecipeCurves* baseline = BaselineIn(comparison);
  if (baseline == nullptr || baseline->curves.empty() || !HasShares(comparison)) return "";
  std::string text;
  for (const double level : comparison.levels) {
    absl::StrAppend(
        &text,
        absl::StrFormat(
            "\nTo held-out reward %g at equal shares of the layouts: ratios of steps to "
            "%s, less what the rarer layout's share explains (its slope within "
            "recipes).\n\n",
            level, baseline->name),
        "| recipe | rarer layout, where the level is reached | steps ratio at equal shares |\n"
        "|---|---|---|\n");
    for (const RecipeCurves& recipe : comparison.recipes) {
      absl::StrAppend(&text, Row(recipe, *baseline, level));
    }
  }
  return text;
}

}  // namespace oxbow::cli
