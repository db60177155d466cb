// SPDX-License-Identifier: Apache-2.0
// The account that a process of the fleet gives when it ends: calls that it refused, memory,
// processor time. One line on standard output, of which the fleet's main process makes the sum.
#pragma once

#include <cstdint>
#include <string>

namespace oxbow::bench {

// From here on the process's memory counts as what its load takes.
class OwnAccount {
 public:
  OwnAccount();
  // "END mib=12.5 cpu_s=3.1 refused=oxbow.v1.Reward/Score:2", then `more`. The memory is the most
  // that was resident since the account began, beside what was resident then.
  void Print(const std::string& more = "") const;

 private:
  const int64_t before_;
};

}  // namespace oxbow::bench
