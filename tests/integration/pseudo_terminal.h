// SPDX-License-Identifier: Apache-2.0
// One call of a command on a terminal of a given width, and what a person sees there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace oxbow::testing {

struct TerminalSession {
  int exit_code = 0;  // Minus the signal that ended it.
  std::string text;   // The command's output, escape codes included.
};

// Runs a command with stdout and stderr on a pseudo-terminal of so many columns, and waits for its
// end. After `timeout` it is killed: kDeadlineExceeded with what it wrote.
absl::StatusOr<TerminalSession> RunInTerminal(const std::vector<std::string>& argv,
                                              uint16_t columns, absl::Duration timeout);

// A terminal without a right edge, so that the length of a line is what the program wanted.
struct Screen {
  std::vector<std::string> lines;      // Lines that stay.
  std::vector<std::string> rewritten;  // Texts of a line before it was written again.
  std::vector<size_t> rewritten_at;    // The index of that line, for each.
};

// Knows "\r", "\n" and the erasure of the rest of a line. Any other escape code stays in the text.
Screen ScreenOf(const std::string& text);

// Characters of UTF-8.
size_t WidthOf(const std::string& line);

}  // namespace oxbow::testing
