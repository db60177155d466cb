// SPDX-License-Identifier: Apache-2.0
// Numbers that say something of many numbers: mean, spread, quantiles.
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
inline double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// sqrt(sum (x - mean)^2 / (n - ddof)); 0 where n <= ddof.
inline double StandardDeviation(const std::vector<double>& values, int ddof) {
  const double count = static_cast<double>(values.size()) - ddof;
  if (count <= 0) return 0;
  const double mean = Mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / count);
}

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

}  // namespace oxbow
