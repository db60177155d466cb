// SPDX-License-Identifier: Apache-2.0
// Notes a reward whose scores leave the range that its server declares. Such a server is wrong
// about its scores or about its range.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/reward/scorer.h"
#include "oxbow/v1/common.pb.h"

namespace oxbow::learner {

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
