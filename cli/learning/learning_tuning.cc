// SPDX-License-Identifier: Apache-2.0
#include "cli/learning/learning_tuning.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/statistics.h"

namespace oxbow::cli {

std::map<std::string, double> BestRates(const std::vector<RateScore>& scores) {
  std::map<std::string, double> best;
  std::map<std::string, double> highest;
  for (const RateScore& score : scores) {
    if (score.scores.empty()) continue;
    const double mean = Mean(score.scores);
    const auto found = highest.find(score.recipe);
    const bool better = found == highest.end() || mean > found->second ||
                        (mean == found->second && score.rate < best[score.recipe]);
    if (!better) continue;
    highest[score.recipe] = mean;
    best[score.recipe] = score.rate;
  }
  return best;
}

std::string TuningTable(const std::vector<RateScore>& scores) {
  std::set<double> rates;
  std::vector<std::string> recipes;
  size_t runs = 0;
  for (const RateScore& score : scores) {
    rates.insert(score.rate);
    if (recipes.empty() || recipes.back() != score.recipe) recipes.push_back(score.recipe);
    runs = std::max(runs, score.scores.size());
  }
  const std::map<std::string, double> best = BestRates(scores);
  std::string table = absl::StrFormat(
      "Learning rates: %d for every recipe, on seeds and prompts for tuning alone, up to %d runs "
      "each; held-out reward averaged over all evaluations. The comparison takes the one in bold."
      "\n\n| recipe |",
      rates.size(), runs);
  for (const double rate : rates) absl::StrAppend(&table, absl::StrFormat(" %g |", rate));
  absl::StrAppend(&table, "\n|---|");
  for (size_t i = 0; i < rates.size(); ++i) absl::StrAppend(&table, "---|");
  absl::StrAppend(&table, "\n");
  for (const std::string& recipe : recipes) {
    absl::StrAppend(&table, "| ", recipe, " |");
    for (const double rate : rates) {
      std::string cell = "-";
      for (const RateScore& score : scores) {
        if (score.recipe != recipe || score.rate != rate || score.scores.empty()) continue;
        cell = absl::StrFormat("%.3f", Mean(score.scores));
        if (best.at(recipe) == rate) cell = absl::StrCat("**", cell, "**");
      }
      absl::StrAppend(&table, " ", cell, " |");
    }
    absl::StrAppend(&table, "\n");
  }
  return table;
}

}  // namespace oxbow::cli
