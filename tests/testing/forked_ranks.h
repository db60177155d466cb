// SPDX-License-Identifier: Apache-2.0
// Several ranks of one test, each a forked child that joins the others over loopback.
//
//   const std::vector<int> exits = RunRanks(3, {}, [](Ranks& ranks) { EXPECT_TRUE(...); });
//   EXPECT_THAT(exits, Each(0));
//
// The children are forked from a process in which torch has run nothing yet, so tests that use
// RunRanks keep torch out of the parent.
#pragma once

#include <functional>
#include <vector>

#include "absl/time/time.h"
#include "core/parallel/c10d_ranks.h"
#include "core/parallel/ranks.h"

namespace oxbow::parallel {

struct ForkOptions {
  absl::Duration join_timeout = absl::Seconds(20);
  absl::Duration operation_timeout = absl::Seconds(20);
  std::vector<int> absent;  // Ranks that never come.
  int killed_last = -1;     // A rank that stops itself: killed once the others have ended.
  std::function<void(const absl::Status&)> on_join_error;  // Default: the test fails.
  bool on_gpus = false;                                    // Rank r on cuda:r.
};

// Exit codes in rank order: 0 if the body met no failed expectation, 1 if it did, minus the signal
// that ended the child. What is still alive `limit` after the fork is killed (-SIGKILL).
std::vector<int> RunRanks(int size, const ForkOptions& options,
                          const std::function<void(Ranks&)>& body,
                          absl::Duration limit = absl::Seconds(60));

}  // namespace oxbow::parallel
