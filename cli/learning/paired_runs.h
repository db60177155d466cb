// SPDX-License-Identifier: Apache-2.0
// Runs of two recipes that share a seed, and what each took to a reward.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/learning/learning_table.h"

namespace oxbow::cli {

// Curves of the same seed; both have points.
struct PairedRuns {
  const io::LearningCurve* recipe;
  const io::LearningCurve* baseline;
};

// The seed of a recipe's i-th curve.
uint32_t SeedOf(const RecipeCurves& recipe, size_t i);

std::vector<PairedRuns> PairsOf(const RecipeCurves& recipe, const RecipeCurves& baseline);

// The point at which the curve, which has points, reached the level; its last one if it never did.
io::CurvePoint ReachedOrLast(const io::LearningCurve& curve, double level);

// Null if no recipe is the baseline.
const RecipeCurves* BaselineIn(const Comparison& comparison);

}  // namespace oxbow::cli
