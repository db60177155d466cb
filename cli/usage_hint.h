// SPDX-License-Identifier: Apache-2.0
// What a person may have meant by a command line that cannot be parsed. Pure.
#pragma once

#include <string>
#include <vector>

namespace oxbow::cli {

// `oxbow help`, `oxbow help COMMAND` and `oxbow version` as `--help`, `COMMAND --help` and
// `--version`; others as they are.
std::vector<std::string> AskedFor(std::vector<std::string> words);

// One line, with its newline: the nearest command for one that is not among `commands`, or the
// setting of a run that an unknown option is named after ("--lr 3"). "" without an idea.
std::string UsageHint(const std::vector<std::string>& words,
                      const std::vector<std::string>& commands);

}  // namespace oxbow::cli
