// SPDX-License-Identifier: Apache-2.0
// How much memory this process has, for tests of what a call takes at most.
#pragma once

#include <malloc.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace oxbow::testing {

// A line of /proc/self/status in bytes: VmRSS, what is resident; VmHWM, the most so far. 0 if there
// is no such line.
inline int64_t OwnMemory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == field + ":" && status >> kib) return kib << 10;
  }
  return 0;
}

// VmHWM starts again at VmRSS, which is returned. Freed memory goes back to the system first, or
// what comes next would take it without being seen.
inline int64_t ForgetPeakMemory() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;
  return OwnMemory("VmRSS");
}

}  // namespace oxbow::testing
