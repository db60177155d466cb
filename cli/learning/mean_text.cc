// SPDX-License-Identifier: Apache-2.0
#include "cli/learning/mean_text.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "base/statistics.h"

namespace oxbow::cli {

double StandardError(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  return StandardDeviation(values, 1) / std::sqrt(static_cast<double>(values.size()));
}

std::string MeanText(const std::vector<double>& values, int digits) {
  if (values.empty()) return "-";
  if (values.size() == 1) return absl::StrFormat("%.*f", digits, values.front());
  return absl::StrFormat("%.*f +- %.*f", digits, Mean(values), digits, StandardError(values));
}

}  // namespace oxbow::cli
