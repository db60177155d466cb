// SPDX-License-Identifier: Apache-2.0
// How commands speak to a person: numbers as people read them, tables, and how a command ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace oxbow::cli {

// "512 B", "3.7 GiB".
std::string BytesText(uint64_t bytes);

// "0:12", "3:04:05".
std::string ClockText(double seconds);

// Rows of cells as lines, two blanks between columns; no line ends with a blank.
std::string TableText(const std::vector<std::vector<std::string>>& rows);

// "limit      rollouts"; empty without a value.
std::string LabelledLine(const char* label, const std::string& value);

// Columns of the terminal at a descriptor, which may change; nothing where no line can be
// rewritten: no terminal, TERM is missing or "dumb", or NO_COLOR asks for no escapes.
std::optional<size_t> TerminalColumns(int descriptor);

// The exit code of `oxbow COMMAND`. An error with words is said on stderr.
int Ended(const std::string& command, const absl::Status& status);

}  // namespace oxbow::cli
