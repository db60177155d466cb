// SPDX-License-Identifier: Apache-2.0
// How long a text has stood unchanged, once a person would notice: "  0:42".
#pragma once

#include <string>

#include "absl/time/time.h"

namespace oxbow::cli {

class StandingText {
 public:
  static constexpr absl::Duration kNoticed = absl::Seconds(3);

  // The words to put behind the text that is shown at `now`; empty while it is new.
  std::string Since(absl::Duration now, const std::string& text);

 private:
  std::string text_;
  absl::Duration begin_;
};

}  // namespace oxbow::cli
