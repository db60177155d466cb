// SPDX-License-Identifier: Apache-2.0
#include "cli/learning/paired_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/statistics.h"
#include "cli/learning/mean_text.h"
#include "cli/learning/paired_runs.h"

namespace oxbow::cli {
namespace {

using Cost = double io::CurvePoint::*;

// "0.81 (0.70 to 0.94) | .012"
std::string RatioAndP(const RecipeCurves& recipe, const RecipeCurves& baseline, double level,
                      Cost cost) {
  const auto interval = CostRatio(recipe, baseline, level, cost, /*to_whole_runs=*/false);
  if (!interval.has_value()) return "- | -";
  std::vector<double> differences;
  bool recipe_short = false;
  bool baseline_short = false;
  for (const PairedRuns& pair : PairsOf(recipe, baseline)) {
    differences.push_back(ReachedOrLast(*pair.recipe, level).*cost -
                          ReachedOrLast(*pair.baseline, level).*cost);
    recipe_short |= !io::Reached(*pair.recipe, level).has_value();
    baseline_short |= !io::Reached(*pair.baseline, level).has_value();
  }
  const char* sign = recipe_short ? (baseline_short ? "~ " : ">= ") : (baseline_short ? "<= " : "");
  return absl::StrFormat("%s%.2f (%.2f to %.2f) | %.3g", sign, interval->ratio, interval->low,
                         interval->high, SignFlipP(differences));
}

std::string PairedRow(const RecipeCurves& recipe, const RecipeCurves& baseline, double level) {
  const std::vector<PairedRuns> pairs = PairsOf(recipe, baseline);
  double reached = 0;
  double steps = 0;
  for (const PairedRuns& pair : pairs) {
    reached += io::Reached(*pair.recipe, level).has_value() ? 1 : 0;
    steps += ReachedOrLast(*pair.recipe, level).step;
  }
  std::string row =
      absl::StrFormat("| %s | %d/%d | %s%.1f |", recipe.name, static_cast<int>(reached),
                      pairs.size(), reached < static_cast<double>(pairs.size()) ? ">= " : "",
                      steps / static_cast<double>(std::max<size_t>(1, pairs.size())));
  for (const Cost cost : {&io::CurvePoint::step, &io::CurvePoint::nfe3, &io::CurvePoint::images}) {
    if (&recipe == &baseline) {
      absl::StrAppend(&row, " 1 | |");
    } else {
      absl::StrAppend(&row, " ", RatioAndP(recipe, baseline, level, cost), " |");
    }
  }
  return row + "\n";
}

constexpr char kPairedHead[] =
    "| recipe | reached | steps | steps ratio | p | NFE3 ratio | p | images ratio | p |\n"
    "|---|---|---|---|---|---|---|---|---|\n";

// The value whose prompts had the lowest mean reward at the first evaluation.
std::optional<std::string> HardestOf(const RecipeCurves& baseline) {
  std::map<std::string, std::vector<double>> first;
  for (const io::LearningCurve& curve : baseline.curves) {
    for (const auto& [value, rewards] : curve.by) {
      if (!rewards.empty() && std::isfinite(rewards[0])) first[value].push_back(rewards[0]);
    }
  }
  std::optional<std::string> hardest;
  for (const auto& [value, rewards] : first) {
    if (!hardest.has_value() || Mean(rewards) < Mean(first.at(*hardest))) hardest = value;
  }
  return hardest;
}

RecipeCurves OfValue(const RecipeCurves& recipe, const std::string& value) {
  RecipeCurves of{.name = recipe.name, .note = recipe.note, .curves = {}, .seeds = {}};
  for (size_t i = 0; i < recipe.curves.size(); ++i) {
    if (!recipe.curves[i].by.contains(value)) continue;
    of.curves.push_back(io::CurveOfValue(recipe.curves[i], value));
    of.seeds.push_back(SeedOf(recipe, i));
  }
  return of;
}

}  // namespace

std::optional<RatioInterval> CostRatio(const RecipeCurves& recipe, const RecipeCurves& baseline,
                                       double level, Cost cost, bool to_whole_runs) {
  const std::vector<PairedRuns> pairs = PairsOf(recipe, baseline);
  return BootstrapInterval(
      pairs.size(), [&](const std::vector<size_t>& items) -> std::optional<double> {
        double wanted = level;
        if (level <= 0) {
          double sum = 0;
          for (const size_t item : items) sum += pairs[item].baseline->final_reward;
          wanted = sum / static_cast<double>(items.size());
        }
        double above = 0;
        double below = 0;
        for (const size_t item : items) {
          above += ReachedOrLast(*pairs[item].recipe, wanted).*cost;
          below += to_whole_runs ? pairs[item].baseline->points.back().*cost
                                 : ReachedOrLast(*pairs[item].baseline, wanted).*cost;
        }
        if (!std::isfinite(above) || !std::isfinite(below) || below <= 0) return std::nullopt;
        return above / below;
      });
}

std::string PairedTables(const Comparison& comparison) {
  const RecipeCurves* baseline = BaselineIn(comparison);
  if (baseline == nullptr || baseline->curves.empty()) return "";
  std::string text;
  for (const double level : comparison.levels) {
    absl::StrAppend(
        &text,
        absl::StrFormat(
            "\nTo held-out reward %g, fixed beforehand; ratios to %s at the same level, over pairs "
            "of runs with the same seed; 95 %% bootstrap intervals over pairs, p of sign flips. A "
            "run that never got there counts with all it took (`>=`, `<=` of the baseline, `~` of "
            "both).\n\n",
            level, baseline->name),
        kPairedHead);
    for (const RecipeCurves& recipe : comparison.recipes) {
      if (!recipe.curves.empty()) absl::StrAppend(&text, PairedRow(recipe, *baseline, level));
    }
  }
  return text;
}

std::string DifficultyTable(const Comparison& comparison) {
  const RecipeCurves* baseline = BaselineIn(comparison);
  if (baseline == nullptr) return "";
  const std::optional<std::string> hardest = HardestOf(*baseline);
  if (!hardest.has_value()) return "";
  std::vector<std::string> values;
  for (const auto& [value, rewards] : baseline->curves.front().by) values.push_back(value);
  std::string text = "\nHeld-out reward at the end by difficulty.\n\n| recipe |";
  std::string line = "\n|---|";
  for (const std::string& value : values) {
    absl::StrAppend(&text, " ", value, " |");
    absl::StrAppend(&line, "---|");
  }
  absl::StrAppend(&text, line, "\n");
  for (const RecipeCurves& recipe : comparison.recipes) {
    if (recipe.curves.empty()) continue;
    absl::StrAppend(&text, "| ", recipe.name, " |");
    for (const std::string& value : values) {
      std::vector<double> ends;
      for (const io::LearningCurve& curve : OfValue(recipe, value).curves) {
        if (std::isfinite(curve.final_reward)) ends.push_back(curve.final_reward);
      }
      absl::StrAppend(&text, " ", MeanText(ends), " |");
    }
    absl::StrAppend(&text, "\n");
  }
  if (comparison.levels.empty()) return text;
  const double level = comparison.levels.front();
  absl::StrAppend(
      &text,
      absl::StrFormat("\nTo reward %g on the prompts that began lowest (%s).\n\n", level, *hardest),
      kPairedHead);
  const RecipeCurves of_baseline = OfValue(*baseline, *hardest);
  for (const RecipeCurves& recipe : comparison.recipes) {
    if (recipe.curves.empty()) continue;
    if (&recipe == baseline) {
      absl::StrAppend(&text, PairedRow(of_baseline, of_baseline, level));
    } else {
      absl::StrAppend(&text, PairedRow(OfValue(recipe, *hardest), of_baseline, level));
    }
  }
  return text;
}

}  // namespace oxbow::cli
