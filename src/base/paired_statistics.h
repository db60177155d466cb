// SPDX-License-Identifier: Apache-2.0
// Two recipes compared by paired runs: pairs share a seed, so a difference is a recipe's and not
// the seed's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace oxbow {

// A ratio with its 95 % interval.
struct RatioInterval {
  double ratio = 0;
  double low = 0;
  double high = 0;
};

// Two-sided p of the mean difference by sign flips: the share of all 2^n assignments of signs whose
// mean is at least as far from 0 as the one observed, that one included. All are counted up to 20
// pairs; beyond, `resamples` are drawn, and p is (hits + 1) / (resamples + 1). 1 for no pairs.
//
// With n pairs it is at least 2^(1-n): of 8 pairs that all agree it is .0078.
double SignFlipP(const std::vector<double>& differences, uint64_t seed = 1,
                 int resamples = 100'000);

// Percentiles 2.5 and 97.5 of `statistic` over samples of n items with replacement, and its value
// on the items themselves. A statistic that depends on an estimated quantity (a level that is a
// mean over the same runs) computes it from the sample, so that its uncertainty is inside the
// interval. Samples without a value are left out; nothing where the items have none. Repeatable.
std::optional<RatioInterval> BootstrapInterval(
    size_t n, const std::function<std::optional<double>(const std::vector<size_t>&)>& statistic,
    uint64_t seed = 1, int resamples = 2000);

// The costs of a pair's two runs, and a second quantity that explains a part of them.
struct ExplainedPair {
  double cost = 0;
  double baseline_cost = 0;
  double covariate = 0;
  double baseline_covariate = 0;
};

// The pairs' differences in cost at equal covariates (analysis of covariance): the differences less
// b times those of the covariates, where b is the slope of costs over covariates, of both runs of
// all pairs, each around the mean of its own recipe. b is 0 where no covariate varies.
// They are not independent, since all have the same b: bootstrap what is made of them.
std::vector<double> DifferencesAtEqual(const std::vector<ExplainedPair>& pairs);

}  // namespace oxbow
