// SPDX-License-Identifier: Apache-2.0
// For any bytes as metrics.jsonl: what is parsed has a step in every line, and what is written of
// it parses to as many lines.
#include "base/check.h"
#include "io/metrics_file.h"
#include "tests/fuzz/bytes_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto lines = oxbow::io::ParseMetrics(oxbow::fuzz::Text(data, size));
  if (!lines.ok()) return 0;
  std::string text;
  for (const auto& line : *lines) text += oxbow::io::FormatMetricsLine(1, line.at("step"), line);
  const auto again = oxbow::io::ParseMetrics(text);
  OXBOW_CHECK(again.ok()) << again.status().ToString();
  OXBOW_CHECK(again->size() == lines->size());
  return 0;
}
