// SPDX-License-Identifier: Apache-2.0
#include "config/copy_target.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace oxbow::config {

absl::StatusOr<CopyTarget> ParseCopyTarget(const std::string& text) {
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, "command:")) return CopyTarget{.directory = text, .command = {}};
  const std::string command(absl::StripAsciiWhitespace(rest));
  if (command.find("{}") == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a command needs {} where the checkpoint's directory goes, got \"", text, "\""));
  }
  return CopyTarget{.directory = {}, .command = command};
}

}  // namespace oxbow::config
