// SPDX-License-Identifier: Apache-2.0
// Watches the scores of a run's groups for rewards that are wrong.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "core/reward/scorer.h"
#include "services/learner/coordinator/group_assembler.h"

namespace oxbow::learner {

// Ends a run whose images cannot be scored: a reward server answers, and nearly never with a score.
class UnscoredGuard {
 public:
  static constexpr double kShareMax = 0.9;   // Share of a step's samples without a score.
  static constexpr uint64_t kGroupsMin = 4;  // In steps beyond that share, one after another.

  // To be called with the groups of each step. kFailedPrecondition, quoting `reason`, once steps in
  // a row with kGroupsMin groups together have more than kShareMax of their samples unscored.
  // `lost`: samples without a score whose head was lost. No reward server is to blame for them.
  absl::Status Check(LearnerStep step, const std::vector<ReceivedGroup>& groups,
                     const std::string& reason, uint64_t lost = 0);

  bool tripped() const { return tripped_; }

 private:
  uint64_t groups_ = 0;  // In the last steps beyond the share, in a row.
  bool tripped_ = false;
};

// Notes a reward whose scores leave the range that its server declares. Such a server is wrong
// about its scores or about its range.
class RangeWatch {
 public:
  RangeWatch() = default;
  // A reward without facts, or that declares no range, is not watched.
  explicit RangeWatch(std::map<std::string, reward::RewardFacts> facts)
      : facts_(std::move(facts)) {}

  // One line for each reward that leaves its range in this group for the first time.
  std::vector<std::string> Look(const v1::Group& group);

 private:
  std::map<std::string, reward::RewardFacts> facts_;
  std::set<std::string> told_;
};

}  // namespace oxbow::learner
