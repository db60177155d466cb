// SPDX-License-Identifier: Apache-2.0
#include "cli/learning/mean_text.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "base/statistics.h"

namespace oxbow::cli {

std::string MeanText(const std::vector<double>& values) {
  if (values.empty()) return "-";
  if (values.size() == 1) return absl::StrFormat("%.3f", values.front());
  const double error = StandardDeviation(values, 1) / std::sqrt(static_cast<double>(values.size()));
  return absl::StrFormat("%.3f +- %.3f", Mean(values), error);
}

}  // namespace oxbow::cli
