// SPDX-License-Identifier: Apache-2.0
// Ends a run whose images cannot be scored: a reward server answers, and nearly never with a score.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "services/learner/coordinator/group_assembler.h"

namespace oxbow::learner {

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

}  // namespace oxbow::learner
