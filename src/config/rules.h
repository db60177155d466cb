// SPDX-License-Identifier: Apache-2.0
// The rules of a config beyond the range of a single key: each adds its errors and warnings to
// Findings. Validate (config/validate.h) calls them all; cli/plan/check_files adds those of files.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "config/validate.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

class Findings {
 public:
  void Error(std::string key, std::string message) {
    problems.push_back({Severity::kError, std::move(key), std::move(message)});
  }
  void Warn(std::string key, std::string message) {
    problems.push_back({Severity::kWarning, std::move(key), std::move(message)});
  }
  void ErrorIf(bool wrong, std::string key, std::string message) {
    if (wrong) Error(std::move(key), std::move(message));
  }
  void WarnIf(bool odd, std::string key, std::string message) {
    if (odd) Warn(std::move(key), std::move(message));
  }
  // An error of the world, with its code, unless it is OK.
  void AddIfBad(std::string key, const absl::Status& status) {
    if (status.ok()) return;
    problems.push_back(
        {Severity::kError, std::move(key), std::string(status.message()), status.code()});
  }
  void Add(const std::vector<Problem>& more) {
    problems.insert(problems.end(), more.begin(), more.end());
  }
  // Unless `ok`, adds an error whose message ends with the offending value.
  template <typename T>
  void Require(bool ok, const char* key, const char* rule, const T& value) {
    if (!ok) Error(key, absl::StrCat(rule, ", got ", value));
  }

  template <typename T>
  void AtLeast(int least, const char* key, const T& value) {
    if (!(value >= static_cast<T>(least))) {
      Error(key, absl::StrCat("must be at least ", least, ", got ", value));
    }
  }
  template <typename T>
  void AboveZero(const char* key, const T& value) {
    Require(value > 0, key, "must be above 0", value);
  }

  std::vector<Problem> problems;
};

// The `method` section: which settings a method has, on which scale, and what it needs from the
// other sections. What differs from method to method is in its row (core/rl/method_facts.h).
void MethodRules(const v1::RunConfig& c, Findings& f);

// Settings of methods that train on final images, and each method's own section.
void ForwardProcessRules(const v1::RunConfig& c, Findings& f);

// The `adaptation` section: what choosing the groups of a step needs of the run. Says nothing where
// it is off.
void AdaptationRules(const v1::RunConfig& c, Findings& f);

// Groups that are trees: sampling.split_steps and method.branch (docs/methods/branch_grpo.md).
void BranchGroupRules(const v1::RunConfig& c, Findings& f);

// The forms of reuse in `replay` (docs/methods/reuse.md).
void ReuseRules(const v1::RunConfig& c, Findings& f);

// Steps that may be stochastic in some learner step: [first, end).
struct Reach {
  uint64_t first = 0;
  uint64_t end = 0;
};
Reach ReachOf(const v1::SamplingConfig& s);

// Whether the steps of its window differ from learner step to learner step.
bool WindowMoves(const v1::SamplingConfig& s);

// Fewer steps behind the last stochastic one.
void CompressionRules(const v1::RunConfig& c, Findings& f);

// Requires sde_first and sde_count that are right.
void WindowRules(const v1::SamplingConfig& s, Findings& f);

// The keys by which something depends on the numbers of each evaluation. Training waits for an
// evaluation if there are any, and else goes on meanwhile.
std::vector<std::string> KeysThatAwaitEvaluations(const v1::RunConfig& config);

}  // namespace oxbow::config
