// SPDX-License-Identifier: Apache-2.0
// Which groups share a call to a reward server, and when that pays. Pure; not thread-safe.
//
// A call costs both sides a quarter of a millisecond and more beside what it is for, which is more
// than small pictures cost. But a server answers the requests of one call one after the other, so
// groups share a call where pictures are small and rewards are quick. A call that does not pay is
// followed by a rest, each time a longer one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "services/reward/score_call.h"

namespace oxbow::reward {

// What a shared call asks of one group.
struct GroupPart {
  ScoreCall* call = nullptr;
  const ScoreBatch* batch = nullptr;
};

struct SharedCallLimits {
  size_t groups = 16;                                // In one call,
  uint64_t bytes = uint64_t{1} << 20;                // and their pixels.
  absl::Duration quick = absl::Milliseconds(3);      // A call that pays takes so long a group.
  absl::Duration longest = absl::Milliseconds(250);  // After it the groups go by themselves.
};

// Deals groups of so many bytes each to `servers` servers that have the same rewards, as calls in
// turn would be, and cuts where a limit is reached. A group that has nobody to share with is left
// out.
std::vector<std::vector<size_t>> DealGroups(const std::vector<uint64_t>& bytes, size_t servers,
                                            const SharedCallLimits& limits);

class SharedCallRest {
 public:
  // Whether this time a call is to be shared. To be followed by Paid or DidNotPay if one was made.
  bool Tries();
  void Paid() { rest_ = 0; }
  void DidNotPay();

 private:
  uint64_t rest_ = 0;  // Times, after the last call that did not pay.
  uint64_t left_ = 0;  // Times that are left.
};

}  // namespace oxbow::reward
