// SPDX-License-Identifier: Apache-2.0
// A rule of a config as a test's case: the smallest change to a valid run that breaks it, and what
// is said about it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "config/validate.h"

namespace oxbow::config {

inline constexpr Severity kError = Severity::kError;
inline constexpr Severity kWarning = Severity::kWarning;

struct RuleCase {
  const char* name;
  std::vector<std::string> set;
  Severity severity;
  const char* key;
  const char* says;
};

inline std::ostream& operator<<(std::ostream& out, const RuleCase& c) { return out << c.name; }

inline ResolvedConfig ValidRun(const std::vector<std::string>& set) {
  std::vector<std::string> all = {"recipe=digits-op-grpo"};
  all.insert(all.end(), set.begin(), set.end());
  return LoadRunConfig({}, all, {}).value();
}

// The run with the case's settings has one problem: this one.
inline void ExpectOnlyProblem(const RuleCase& rule) {
  const ResolvedConfig run = ValidRun(rule.set);
  const std::vector<Problem> problems = Validate(run.config);
  ASSERT_EQ(problems.size(), 1) << (problems.empty() ? ""
                                                     : ProblemLine(problems[0], run.provenance));
  EXPECT_EQ(problems[0].severity, rule.severity);
  EXPECT_EQ(problems[0].key, rule.key);
  EXPECT_THAT(problems[0].message, ::testing::HasSubstr(rule.says));
  EXPECT_EQ(!FirstError(problems, run.provenance).ok(), rule.severity == Severity::kError);
}

}  // namespace oxbow::config
