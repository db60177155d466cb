// SPDX-License-Identifier: Apache-2.0
// A guess at what a person meant by a command line that cannot be parsed. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace oxbow::cli {

// `oxbow help`, `oxbow help COMMAND` and `oxbow version` as `--help`, `COMMAND --help` and
// `--version`; others as they are.
std::vector<std::string> AskedFor(std::vector<std::string> words);

// Words that are known in a place of the command line.
struct KnownWords {
  size_t depth = 0;  // So many words name a command before it: 1 after "config".
  std::vector<std::string> commands;
  // Options of the command that the words name, without dashes: "set", "timeout".
  std::vector<std::string> options;
  bool takes_settings = false;  // That command has --set KEY=VALUE of a run.
};

// One line, with its newline: the nearest command for one that is not known, and where one went
// that is no more; else for the first option that is not known the settings of a run that it is
// named after ("--lr 3"), the nearest option, or all that there are. "" without an idea.
std::string UsageHint(const std::vector<std::string>& words, const KnownWords& known);

}  // namespace oxbow::cli
