// SPDX-License-Identifier: Apache-2.0
// How every table of a comparison writes a mean over runs.
#pragma once

#include <string>
#include <vector>

namespace oxbow::cli {

// The standard error of a mean over runs; 0 of a single value.
double StandardError(const std::vector<double>& values);

// "0.970 +- 0.010": the mean and its standard error, with so many decimals; of a single value no
// error; "-" without values.
std::string MeanText(const std::vector<double>& values, int digits = 3);

}  // namespace oxbow::cli
