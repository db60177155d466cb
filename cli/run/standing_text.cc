// SPDX-License-Identifier: Apache-2.0
#include "cli/run/standing_text.h"

#include "absl/strings/str_cat.h"
#include "cli/run/progress_line.h"

namespace oxbow::cli {

std::string StandingText::Since(absl::Duration now, const std::string& text) {
  if (text != text_) {
    text_ = text;
    begin_ = now;
  }
  const absl::Duration since = now - begin_;
  return since < kNoticed ? "" : absl::StrCat("  ", ClockText(absl::ToDoubleSeconds(since)));
}

}  // namespace oxbow::cli
