// SPDX-License-Identifier: Apache-2.0
// The result of `oxbow doctor`: one line per check, ok, warn or fail, with what to do about it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace oxbow::cli {

enum class Grade { kOk, kWarn, kFail };

struct Check {
  std::string area;  // "machine", "config", "fleet"
  std::string name;  // For example "memory". Unique within an area, or within an area and process.
  Grade verdict = Grade::kOk;
  std::string found;      // The finding, with the numbers.
  std::string fix;        // The remedy; empty if nothing is wrong.
  bool ends_run = false;  // For certain, whatever the run keeps.
};

using Checks = std::vector<Check>;

// kFail above `fail`, kWarn above `warn`.
Grade Above(double value, double warn, double fail);

void Append(const Checks& more, Checks& checks);

Grade WorstOf(const Checks& checks);

// A line per check, with its fix below it, and a last line with the counts. Sentences are wrapped
// to so many columns; with 0 they are not.
std::string CheckupText(const Checks& checks, size_t columns = 0);

// {"verdict": "warn", "checks": [{"area", "name", "verdict", "found", "fix"}]}
std::string CheckupJson(const Checks& checks);

// 0, or 1 if a check failed; with `strict` also 1 if a check warns.
int CheckupExitCode(const Checks& checks, bool strict);

}  // namespace oxbow::cli
