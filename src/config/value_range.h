// SPDX-License-Identifier: Apache-2.0
// The values that a key of a run may have, as its comment in configs/defaults.yaml says them.
//
// A clause of the comment, between "; ", is a range if all of it is one of these forms:
//   at least 1    above 0    at most 512    below 1    above 0 and at most 1    1 to 64
// ", or 0" behind it allows 0 besides. The range is what validation (config/validate.h) refuses by
// the value alone; bounds that depend on other keys stand elsewhere in the comment.
#pragma once

#include <optional>
#include <string>

namespace oxbow::config {

struct ValueRange {
  struct Bound {
    double value = 0;
    bool open = false;  // The bound itself is outside.
  };
  std::optional<Bound> low;
  std::optional<Bound> high;
  bool or_zero = false;
};

// Empty: the clause is no range.
std::optional<ValueRange> ParseRange(const std::string& clause);

}  // namespace oxbow::config
