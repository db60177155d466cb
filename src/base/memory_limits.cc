// SPDX-License-Identifier: Apache-2.0
#include "base/memory_limits.h"

#include <algorithm>
#include <cstdlib>  // Defines __GLIBC__.

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/machine_share.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace oxbow {
namespace {

constexpr char kVariable[] = "OXBOW_MEMORY_BYTES";

}  // namespace

uint64_t UsableMemory() {
  const char* const told = std::getenv(kVariable);
  uint64_t bytes = 0;
  return told != nullptr && absl::SimpleAtoi(told, &bytes) && bytes > 0 ? bytes : MemoryAllowed();
}

std::string MemoryFor(uint64_t own, uint64_t all) {
  return absl::StrCat(kVariable, "=", UsableMemory() / std::max<uint64_t>(1, all) * own);
}

void ShareMemoryAmong(uint64_t processes) {
  const uint64_t each = UsableMemory() / std::max<uint64_t>(1, processes);
  setenv(kVariable, absl::StrCat(each).c_str(), /*overwrite=*/1);
}

uint64_t LimitOf(const MemoryShare& share, uint64_t memory) {
  return std::clamp(static_cast<uint64_t>(share.share * static_cast<double>(memory)), share.least,
                    share.most);
}

void LogMemoryLimits(const std::vector<std::pair<std::string, uint64_t>>& limits) {
  if (!LogEnabled(LogLevel::kInfo)) return;
  LogEvent event(LogLevel::kInfo, __FILE__, __LINE__);
  event << "memory limits, in MiB" << Field("memory", UsableMemory() >> 20);
  for (const auto& [name, bytes] : limits) event << Field(name, bytes >> 20);
}

void KeepFreedMemory([[maybe_unused]] size_t bytes) {
#ifdef __GLIBC__
  // Blocks smaller than the first value come from the heap. The heap shrinks when more than the
  // second value is free at its end. Setting either one also stops glibc from changing the first by
  // itself.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, static_cast<int>(bytes));
#endif
}

void ReturnFreedMemory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace oxbow
