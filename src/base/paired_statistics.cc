// SPDX-License-Identifier: Apache-2.0
#include "base/paired_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"
#include "base/statistics.h"

namespace oxbow {
namespace {

constexpr size_t kExactMax = 20;  // Pairs; a million assignments.
constexpr double kSlack = 1e-12;  // Equal sums may differ by rounding.

// By Gray code: each assignment flips one sign of the one before.
double ExactP(const std::vector<double>& differences, double observed) {
  const uint64_t all = uint64_t{1} << differences.size();
  double sum = std::accumulate(differences.begin(), differences.end(), 0.0);
  std::vector<double> sign(differences.size(), 1);
  uint64_t hits = std::abs(sum) >= observed ? 1 : 0;
  for (uint64_t i = 1; i < all; ++i) {
    size_t flip = 0;
    while (((i >> flip) & 1) == 0) ++flip;
    sum -= 2 * sign[flip] * differences[flip];
    sign[flip] = -sign[flip];
    hits += std::abs(sum) >= observed ? 1 : 0;
  }
  return static_cast<double>(hits) / static_cast<double>(all);
}

}  // namespace

double SignFlipP(const std::vector<double>& differences, uint64_t seed, int resamples) {
  if (differences.empty()) return 1;
  double scale = 0;
  for (const double x : differences) scale += std::abs(x);
  const double sum = std::accumulate(differences.begin(), differences.end(), 0.0);
  const double observed = std::abs(sum) - kSlack * scale;
  if (differences.size() <= kExactMax) return ExactP(differences, observed);
  RandomStream stream({.seed = seed, .group = differences.size(), .step = kTaskData});
  int hits = 1;
  for (int i = 0; i < resamples; ++i) {
    double drawn = 0;
    for (const double x : differences) drawn += stream.NextBelow(2) == 0 ? x : -x;
    hits += std::abs(drawn) >= observed ? 1 : 0;
  }
  return static_cast<double>(hits) / (resamples + 1);
}

std::optional<RatioInterval> BootstrapInterval(
    size_t n, const std::function<std::optional<double>(const std::vector<size_t>&)>& statistic,
    uint64_t seed, int resamples) {
  if (n == 0) return std::nullopt;
  std::vector<size_t> items(n);
  std::iota(items.begin(), items.end(), size_t{0});
  const std::optional<double> value = statistic(items);
  if (!value.has_value()) return std::nullopt;
  RandomStream stream({.seed = seed, .group = n, .step = kTaskData});
  std::vector<double> values;
  for (int i = 0; i < resamples; ++i) {
    for (size_t& item : items) item = static_cast<size_t>(stream.NextBelow(n));
    if (const auto drawn = statistic(items); drawn.has_value()) values.push_back(*drawn);
  }
  return RatioInterval{
      .ratio = *value, .low = Quantile(values, 0.025), .high = Quantile(values, 0.975)};
}

std::vector<double> DifferencesAtEqual(const std::vector<ExplainedPair>& pairs) {
  const auto n = static_cast<double>(pairs.size());
  ExplainedPair mean;
  for (const ExplainedPair& pair : pairs) {
    mean.cost += pair.cost / n;
    mean.baseline_cost += pair.baseline_cost / n;
    mean.covariate += pair.covariate / n;
    mean.baseline_covariate += pair.baseline_covariate / n;
  }
  double products = 0;
  double squares = 0;
  for (const ExplainedPair& pair : pairs) {
    const double x = pair.covariate - mean.covariate;
    const double x_baseline = pair.baseline_covariate - mean.baseline_covariate;
    products +=
        x * (pair.cost - mean.cost) + x_baseline * (pair.baseline_cost - mean.baseline_cost);
    squares += x * x + x_baseline * x_baseline;
  }
  const double slope = squares > 0 ? products / squares : 0;
  std::vector<double> differences;
  for (const ExplainedPair& pair : pairs) {
    differences.push_back(pair.cost - pair.baseline_cost -
                          slope * (pair.covariate - pair.baseline_covariate));
  }
  return differences;
}

}  // namespace oxbow
