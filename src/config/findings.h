// SPDX-License-Identifier: Apache-2.0
// Collects the errors and warnings of the config rules.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "config/validate.h"

namespace oxbow::config {

class Findings {
 public:
  void Error(std::string key, std::string message) {
    problems.push_back({Severity::kError, std::move(key), std::move(message)});
  }
  void Warn(std::string key, std::string message) {
    problems.push_back({Severity::kWarning, std::move(key), std::move(message)});
  }
  // Unless `ok`, adds an error whose message ends with the offending value.
  template <typename T>
  void Require(bool ok, const char* key, const char* rule, const T& value) {
    if (!ok) Error(key, absl::StrCat(rule, ", got ", value));
  }

  std::vector<Problem> problems;
};

}  // namespace oxbow::config
