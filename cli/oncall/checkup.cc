// SPDX-License-Identifier: Apache-2.0
#include "cli/oncall/checkup.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "base/first_part.h"

namespace oxbow::cli {
namespace {

const char* NameOf(Grade verdict) {
  static constexpr const char* kNames[] = {"ok", "warn", "fail"};
  return kNames[static_cast<int>(verdict)];
}

int64_t CountOf(const Checks& checks, Grade verdict) {
  return std::count_if(checks.begin(), checks.end(),
                       [&](const Check& check) { return check.verdict == verdict; });
}

}  // namespace

Grade Above(double value, double warn, double fail) {
  return value > fail ? Grade::kFail : value > warn ? Grade::kWarn : Grade::kOk;
}

void Append(const Checks& more, Checks& checks) {
  checks.insert(checks.end(), more.begin(), more.end());
}

Grade WorstOf(const Checks& checks) {
  Grade worst = Grade::kOk;
  for (const Check& check : checks) worst = std::max(worst, check.verdict);
  return worst;
}

std::string CheckupText(const Checks& checks, size_t columns) {
  constexpr size_t kFoundAt = 37, kFixAt = 11;
  std::string text;
  for (const Check& check : checks) {
    absl::StrAppendFormat(&text, "%-5s %-30s %s\n", NameOf(check.verdict),
                          absl::StrCat(check.area, "/", check.name),
                          Wrapped(check.found, kFoundAt, columns));
    if (check.fix.empty()) continue;
    absl::StrAppend(&text, "      fix: ", Wrapped(check.fix, kFixAt, columns), "\n");
  }
  return absl::StrCat(text, CountOf(checks, Grade::kOk), " ok, ", CountOf(checks, Grade::kWarn),
                      " warn, ", CountOf(checks, Grade::kFail), " fail\n");
}

std::string CheckupJson(const Checks& checks) {
  nlohmann::ordered_json json = {{"verdict", NameOf(WorstOf(checks))},
                                 {"checks", nlohmann::ordered_json::array()}};
  for (const Check& check : checks) {
    json["checks"].push_back({{"area", check.area},
                              {"name", check.name},
                              {"verdict", NameOf(check.verdict)},
                              {"found", check.found},
                              {"fix", check.fix}});
  }
  // Text from other programs may not be UTF-8.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int CheckupExitCode(const Checks& checks, bool strict) {
  const Grade worst = WorstOf(checks);
  const bool bad = worst == Grade::kFail || (strict && worst == Grade::kWarn);
  return bad ? kExitFailure : kExitOk;
}

}  // namespace oxbow::cli
