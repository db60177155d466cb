// Numbers that say something of many numbers: mean, spread, quantiles, and a ratio with its
// interval.
//
// Sums run from the first value to the last, so that the same values in the same order give the
// same bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace oxbow {

// 0 for no values.
double Mean(const std::vector<double>& values);

// sqrt(sum (x - mean)^2 / (n - ddof)); 0 where n <= ddof.
double StandardDeviation(const std::vector<double>& values, int ddof);

// The value of rank round(q (n - 1)) among the sorted ones: q = 0.5 is the median, and the upper
// one of two. `q` is cut to [0, 1]. T() for no values.
template <typename T>
T Quantile(std::vector<T> values, double q) {
  if (values.empty()) return T();
  const double last = static_cast<double>(values.size() - 1);
  const std::ptrdiff_t rank = std::lround(std::clamp(q, 0.0, 1.0) * last);
  std::nth_element(values.begin(), values.begin() + rank, values.end());
  return values[static_cast<size_t>(rank)];
}

// A ratio of two means with its 95 % interval.
struct RatioInterval {
  double ratio = 0;
  double low = 0;
  double high = 0;
};

// mean(values) / mean(baseline), with percentiles of a bootstrap that draws with replacement on
// both sides, `resamples` times. Repeatable. Requires values on both sides and positive ones in
// `baseline`.
RatioInterval BootstrapRatio(const std::vector<double>& values, const std::vector<double>& baseline,
                             uint64_t seed, int resamples = 10'000);

}  // namespace oxbow
