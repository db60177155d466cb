// SPDX-License-Identifier: Apache-2.0
// The /metrics page of an oxbow process, and sums over its series.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace oxbow::cli {

// The text of the page. kUnavailable if host:port does not answer in time.
absl::StatusOr<std::string> FetchMetrics(const std::string& endpoint, absl::Duration timeout);

// Sum of the series of `family` whose labels contain `label` ("outcome=\"failed\""; empty: all). 0
// if there is no such series.
double SumOfSeries(const std::string& page, const std::string& family, const std::string& label);

}  // namespace oxbow::cli
