// For any bytes as metrics.jsonl: parsing and cutting agree. What is kept is a prefix of the file
// by lines, parses, and has no later step.
#include "base/check.h"
#include "io/metrics_file.h"
#include "tests/fuzz/bytes_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = oxbow::fuzz::Text(data, size);
  const auto lines = oxbow::io::ParseMetrics(text);
  const auto kept = oxbow::io::KeepStepsUpTo(text, 2);
  if (!lines.ok() || !kept.ok()) return 0;
  const auto again = oxbow::io::ParseMetrics(*kept);
  OXBOW_CHECK(again.ok()) << again.status().ToString();
  OXBOW_CHECK(again->size() <= lines->size());
  for (const auto& line : *again) OXBOW_CHECK(line.at("step") <= 2);
  return 0;
}
