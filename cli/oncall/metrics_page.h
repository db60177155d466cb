// A /metrics page of one of our processes, and sums over its series.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace oxbow::cli {

// The page's text. kUnavailable if nobody answers at host:port in time.
absl::StatusOr<std::string> FetchMetrics(const std::string& endpoint, absl::Duration timeout);

// Sum of the series of `family` whose labels contain `label` ("outcome=\"failed\""; empty: all). 0
// if there is none.
double SumOfSeries(const std::string& page, const std::string& family, const std::string& label);

}  // namespace oxbow::cli
