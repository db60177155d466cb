// SPDX-License-Identifier: Apache-2.0
// All that a lease table remembers, as plain data.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/ids.h"

namespace oxbow::lease {

// One attempt of one worker at one group.
struct LeaseGrant {
  LeaseId id;
  GroupId group;
  LearnerStep step;
  uint32_t attempt = 0;  // 1 for the first.
  std::string worker;
  bool speculative = false;  // A second lease of a running group.
};

struct LeaseState {
  struct Group {
    uint32_t attempt = 0;
    uint32_t failures = 0;
    std::vector<std::string> failed_by;  // Workers, each once.
    absl::Duration failed;               // When it failed last.
    bool accepted = false;
    bool speculated = false;  // Had its second lease.
    LeaseId first;            // The accepted lease, or a live one; 0: none.
    LeaseId second;           // A live lease beside `first`, or the one it superseded; 0: none.
    absl::Duration since;     // When its first live lease was granted.
  };
  struct Live {
    LeaseGrant grant;
    absl::Duration deadline;
    absl::Duration granted;
    absl::Duration renewed = granted;
    absl::Duration waited;  // For reward servers.
  };
  using Time = std::pair<absl::Duration, uint64_t>;

  uint64_t leases_granted = 0;
  uint64_t planned = 0;              // Groups planned in the whole run, U a step.
  uint64_t accepted = 0;             // Planned groups that are accepted, or their refills.
  std::map<uint64_t, Group> groups;  // By group.
  std::set<uint64_t> pending;        // Groups to grant.
  std::map<uint64_t, absl::Duration> cooling;  // Failed groups: when each may be granted.
  absl::flat_hash_map<uint64_t, Live> live;    // By lease.
  // (time, lease): when to look whether the lease is overdue. Every live lease has an entry that is
  // not later than its deadline. A renewal leaves the entry as it is, and so does a lease's end.
  std::priority_queue<Time, std::vector<Time>, std::greater<>> checks;
  std::set<Time> running;                                     // (since, group): with a live lease.
  absl::flat_hash_map<std::string, uint64_t> live_by_worker;  // Counts; a worker without is absent.
};

}  // namespace oxbow::lease
