// SPDX-License-Identifier: Apache-2.0
#include "cli/learning/paired_runs.h"

namespace oxbow::cli {

uint32_t SeedOf(const RecipeCurves& recipe, size_t i) {
  return i < recipe.seeds.size() ? recipe.seeds[i] : static_cast<uint32_t>(i);
}

std::vector<PairedRuns> PairsOf(const RecipeCurves& recipe, const RecipeCurves& baseline) {
  std::vector<PairedRuns> pairs;
  for (size_t i = 0; i < recipe.curves.size(); ++i) {
    for (size_t j = 0; j < baseline.curves.size(); ++j) {
      if (SeedOf(recipe, i) != SeedOf(baseline, j)) continue;
      if (recipe.curves[i].points.empty() || baseline.curves[j].points.empty()) continue;
      pairs.push_back({&recipe.curves[i], &baseline.curves[j]});
    }
  }
  return pairs;
}

io::CurvePoint ReachedOrLast(const io::LearningCurve& curve, double level) {
  return io::Reached(curve, level).value_or(curve.points.back());
}

const RecipeCurves* BaselineIn(const Comparison& comparison) {
  for (const RecipeCurves& recipe : comparison.recipes) {
    if (recipe.name == comparison.baseline) return &recipe;
  }
  return nullptr;
}

}  // namespace oxbow::cli
