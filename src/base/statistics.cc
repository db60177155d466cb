// SPDX-License-Identifier: Apache-2.0
#include "base/statistics.h"

namespace oxbow {

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double StandardDeviation(const std::vector<double>& values, int ddof) {
  const double count = static_cast<double>(values.size()) - ddof;
  if (count <= 0) return 0;
  const double mean = Mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / count);
}

}  // namespace oxbow
