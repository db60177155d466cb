// SPDX-License-Identifier: Apache-2.0
// For any bytes as metrics.jsonl: a line that is parsed has a step, and what is written of it
// parses.
#include <sstream>
#include <string>

#include "base/check.h"
#include "io/metrics_file.h"
#include "tests/fuzz/bytes_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::istringstream lines{std::string(oxbow::fuzz::Text(data, size))};
  for (std::string text; std::getline(lines, text);) {
    const auto line = oxbow::io::ParseMetricsLine(text);
    if (!line.has_value()) continue;
    const std::string again = oxbow::io::FormatMetricsLine(1, line->at("step"), *line);
    OXBOW_CHECK(oxbow::io::ParseMetricsLine(again).has_value()) << again;
  }
  return 0;
}
