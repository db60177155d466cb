// SPDX-License-Identifier: Apache-2.0
// The choice of each recipe's learning rate: as many rates, seeds and prompts for every recipe.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace oxbow::cli {

// The runs of one recipe with one learning rate.
struct RateScore {
  std::string recipe;
  double rate = 0;
  std::vector<double> scores;  // io::MeanReward of each finished run.
};

// The rate with the highest mean score, of equal ones the lower, by recipe. Recipes without a
// finished run have none.
std::map<std::string, double> BestRates(const std::vector<RateScore>& scores);

// A row per recipe, a column per rate; the chosen one in bold. Says for how many rates and runs.
std::string TuningTable(const std::vector<RateScore>& scores);

}  // namespace oxbow::cli
