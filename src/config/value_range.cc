// SPDX-License-Identifier: Apache-2.0
#include "config/value_range.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace oxbow::config {
namespace {

struct Form {
  const char* words;
  std::optional<ValueRange::Bound> ValueRange::*side;
  bool open;
};

constexpr Form kForms[] = {{"at least ", &ValueRange::low, false},
                           {"above ", &ValueRange::low, true},
                           {"at most ", &ValueRange::high, false},
                           {"below ", &ValueRange::high, true}};

// Whether `text` is one bound, of a side that has none yet.
bool TakeBound(absl::string_view text, ValueRange& range) {
  for (const Form& form : kForms) {
    if (!absl::ConsumePrefix(&text, form.words)) continue;
    double value = 0;
    if ((range.*form.side).has_value() || !absl::SimpleAtod(text, &value)) return false;
    range.*form.side = ValueRange::Bound{value, form.open};
    return true;
  }
  return false;
}

}  // namespace

std::optional<ValueRange> ParseRange(const std::string& clause) {
  absl::string_view text = clause;
  ValueRange range{.low = {}, .high = {}, .or_zero = absl::ConsumeSuffix(&text, ", or 0")};
  const std::vector<absl::string_view> ends = absl::StrSplit(text, " to ");
  double low = 0, high = 0;
  if (ends.size() == 2 && absl::SimpleAtod(ends[0], &low) && absl::SimpleAtod(ends[1], &high)) {
    range.low = {low, false};
    range.high = {high, false};
    return range;
  }
  for (const absl::string_view bound : absl::StrSplit(text, " and ")) {
    if (!TakeBound(bound, range)) return std::nullopt;
  }
  return range;
}

}  // namespace oxbow::config
