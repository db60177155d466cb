// SPDX-License-Identifier: Apache-2.0
// How much of the machine this process may use: cores and memory, by its affinity and by the quotas
// of its control groups, which containers have. Versions 1 and 2 of control groups are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace oxbow {

// Cores, at least a part of one.
double UsableCores();

// Threads that keep these cores busy; at least 1.
int UsableThreads();

// Bytes that the control groups still allow; nothing without a limit. File pages that the kernel
// can drop do not count as used.
std::optional<uint64_t> MemoryLeftInGroups();

// Bytes that this process may use when nothing else does: the least limit of its control groups, or
// the machine's memory where that is less.
uint64_t MemoryAllowed();

// The quotas of a process with this /proc/self/cgroup, where the hierarchies are mounted below
// `root`. A limit of a group above it counts as well.
struct GroupQuotas {
  std::optional<double> cores;
  std::optional<uint64_t> memory_left;
  std::optional<uint64_t> memory_limit;
};
GroupQuotas QuotasOf(const std::string& cgroup, const std::filesystem::path& root);

}  // namespace oxbow
