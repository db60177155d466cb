// How many calls this process has refused because it had no room: RESOURCE_EXHAUSTED. The server
// counts (rpc/refusals.h), /metrics tells (telemetry/process_metrics.h).
#pragma once

#include <atomic>
#include <cstdint>

namespace oxbow {

inline std::atomic<uint64_t>& RefusedCalls() {
  static std::atomic<uint64_t> count = 0;
  return count;
}

}  // namespace oxbow
