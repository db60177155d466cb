// SPDX-License-Identifier: Apache-2.0
// How much memory this process has and what it has read, for tests of what a call takes at most.
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

// Bytes that this process has read so far, from files and pipes.
inline int64_t OwnBytesRead() {
  std::ifstream io("/proc/self/io");
  for (std::string word; io >> word;) {
    if (int64_t bytes = 0; word == "rchar:" && io >> bytes) return bytes;
  }
  return -1;
}

// VmHWM starts again at VmRSS, which is returned. Freed memory goes back to the system first, or
// what comes next would take it without being seen. From now on blocks of 128 KiB or more have a
// mapping of their own, which goes when they are freed: what the heap keeps of freed blocks, more
// of it where the system has huge pages, would count as taken.
inline int64_t ForgetPeakMemory() {
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;
  return OwnMemory("VmRSS");
}

}  // namespace oxbow::testing
