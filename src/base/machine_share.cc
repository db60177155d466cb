// SPDX-License-Identifier: Apache-2.0
#include "base/machine_share.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace oxbow {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kNoLimit = uint64_t{1} << 62;  // Version 1 says 2^63 less a page.

std::string TextOf(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::optional<uint64_t> NumberIn(const fs::path& path) {
  uint64_t value = 0;
  if (!absl::SimpleAtoi(TextOf(path), &value) || value >= kNoLimit) return std::nullopt;
  return value;
}

// From a file of lines "NAME NUMBER"; 0 without the name.
uint64_t NumberOf(const fs::path& path, const std::string& wanted) {
  std::istringstream lines(TextOf(path));
  std::string name;
  for (uint64_t number = 0; lines >> name >> number;) {
    if (name == wanted) return number;
  }
  return 0;
}

// Folders of a group and of those above it, up to the mount point of its hierarchy. In a container
// the mount point is the container's own group, whatever its path outside is.
std::vector<fs::path> GroupsUpFrom(const fs::path& mount, const std::string& group) {
  std::vector<fs::path> groups;
  std::error_code ignored;
  for (fs::path at = fs::path(group).relative_path(); !at.empty(); at = at.parent_path()) {
    if (fs::is_directory(mount / at, ignored)) groups.push_back(mount / at);
  }
  groups.push_back(mount);
  return groups;
}

template <typename T>
void TakeLess(std::optional<T> other, std::optional<T>& least) {
  if (other.has_value()) least = std::min(least.value_or(*other), *other);
}

std::optional<uint64_t> MemoryLeft(const fs::path& limit, const fs::path& usage,
                                   const fs::path& statistics, const std::string& droppable) {
  const auto most = NumberIn(limit), used = NumberIn(usage);  // "max": no limit.
  if (!most.has_value() || !used.has_value()) return std::nullopt;
  const uint64_t kept = *used - std::min(*used, NumberOf(statistics, droppable));
  return *most - std::min(*most, kept);
}

void ReadUnified(const fs::path& group, GroupQuotas& quotas) {
  std::istringstream quota(TextOf(group / "cpu.max"));  // "200000 100000" or "max 100000".
  double allowed = 0, period = 0;
  if (quota >> allowed >> period && period > 0) {
    TakeLess(std::optional(allowed / period), quotas.cores);
  }
  TakeLess(MemoryLeft(group / "memory.max", group / "memory.current", group / "memory.stat",
                      "inactive_file"),
           quotas.memory_left);
  TakeLess(NumberIn(group / "memory.max"), quotas.memory_limit);
}

void ReadCpuOfVersion1(const fs::path& group, GroupQuotas& quotas) {
  const auto allowed = NumberIn(group / "cpu.cfs_quota_us");  // -1: no limit.
  const auto period = NumberIn(group / "cpu.cfs_period_us");
  if (allowed.value_or(0) == 0 || period.value_or(0) == 0) return;
  TakeLess(std::optional(static_cast<double>(*allowed) / static_cast<double>(*period)),
           quotas.cores);
}

void ReadMemoryOfVersion1(const fs::path& group, GroupQuotas& quotas) {
  TakeLess(MemoryLeft(group / "memory.limit_in_bytes", group / "memory.usage_in_bytes",
                      group / "memory.stat", "total_inactive_file"),
           quotas.memory_left);
  TakeLess(NumberIn(group / "memory.limit_in_bytes"), quotas.memory_limit);
}

GroupQuotas QuotasHere() { return QuotasOf(TextOf("/proc/self/cgroup"), "/sys/fs/cgroup"); }

}  // namespace

GroupQuotas QuotasOf(const std::string& cgroup, const fs::path& root) {
  GroupQuotas quotas;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(cgroup, '\n'))) {
    // "ID:CONTROLLERS:PATH"; without controllers it is the unified hierarchy.
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    if (parts[1].empty()) {
      for (const fs::path& group : GroupsUpFrom(root, parts[2])) ReadUnified(group, quotas);
      continue;
    }
    for (const std::string& controller : std::vector<std::string>(absl::StrSplit(parts[1], ','))) {
      const auto read = controller == "cpu"      ? ReadCpuOfVersion1
                        : controller == "memory" ? ReadMemoryOfVersion1
                                                 : nullptr;
      if (read == nullptr) continue;
      // A hierarchy of several controllers has a link by the name of each, or their names alone.
      std::error_code ignored;
      const fs::path by_name = root / controller;
      const fs::path mount = fs::exists(by_name, ignored) ? by_name : root / parts[1];
      for (const fs::path& group : GroupsUpFrom(mount, parts[2])) read(group, quotas);
    }
  }
  return quotas;
}

double UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const double cores = sched_getaffinity(0, sizeof set, &set) == 0
                           ? CPU_COUNT(&set)
                           : std::max(1U, std::thread::hardware_concurrency());
  return std::min(cores, QuotasHere().cores.value_or(cores));
}

int UsableThreads() { return std::max(1, static_cast<int>(std::ceil(UsableCores()))); }

std::optional<uint64_t> MemoryLeftInGroups() { return QuotasHere().memory_left; }

uint64_t MemoryAllowed() {
  const auto machine = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                       static_cast<uint64_t>(::sysconf(_SC_PAGE_SIZE));
  return std::min(machine, QuotasHere().memory_limit.value_or(machine));
}

}  // namespace oxbow
