// SPDX-License-Identifier: Apache-2.0
// Default limits of what grows with load: buffers, queues and caches. Each is a share of the memory
// that this process may use, and together they leave room for its libraries and models: a server
// that is overrun refuses calls instead of being killed. Memory is the least limit of the control
// groups, else the machine's; a launcher that starts several processes divides it among them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace oxbow {

struct MemoryShare {
  double share = 0;
  uint64_t least = 0;  // Bytes. Whatever the memory is.
  uint64_t most = 0;   // More would bring nothing.
};

// Every server: gRPC's own buffers. Above, it reads less.
inline constexpr MemoryShare kGrpcShare{0.15, uint64_t{64} << 20, uint64_t{4} << 30};
// Reward server: media of all calls, and those of them that wait for one reward.
inline constexpr MemoryShare kMediaShare{0.3, uint64_t{64} << 20, uint64_t{2} << 30};
inline constexpr MemoryShare kWaitingShare{0.3, uint64_t{64} << 20, uint64_t{1} << 30};
// Replay buffer: all Offer calls together. The least is one entry.
inline constexpr MemoryShare kOffersShare{0.15, uint64_t{128} << 20, uint64_t{256} << 20};
// Worker: conditioning that is kept for later groups and other workers.
inline constexpr MemoryShare kConditioningShare{0.2, 0, uint64_t{1} << 30};
// Learner: encoded prompts, and offers that wait for a replay buffer that is away. What is received
// from workers has a key of its own, services.sink_bytes_max.
inline constexpr MemoryShare kPromptsShare{0.2, uint64_t{64} << 20, uint64_t{4} << 30};
inline constexpr MemoryShare kBacklogShare{0.1, 0, uint64_t{16} << 30};

// Bytes that this process may use.
uint64_t UsableMemory();

// "NAME=value" for the environment of a child that may use `own` of `all` parts of this memory.
std::string MemoryFor(uint64_t own, uint64_t all);
// Leaves one of so many parts to this process and to each that it starts from now on. Call it
// before threads exist.
void ShareMemoryAmong(uint64_t processes);

uint64_t LimitOf(const MemoryShare& share, uint64_t memory);
inline uint64_t LimitOf(const MemoryShare& share) { return LimitOf(share, UsableMemory()); }

// Logs the limits of this process in one line, by name, in MiB.
void LogMemoryLimits(const std::vector<std::pair<std::string, uint64_t>>& limits);

// How the C library treats freed memory.

inline constexpr size_t kMebibyte = size_t{1} << 20;

// Keeps up to `bytes` of freed memory for the next allocation, instead of returning every large
// block to the system at once. In processes that receive weights and latents, fresh pages would
// cost more than receiving the bytes. Call it first in main.
void KeepFreedMemory(size_t bytes = 256 * kMebibyte);

// Gives all freed pages back to the system now, wherever they are in the heap: after much was freed
// that does not come again.
void ReturnFreedMemory();

}  // namespace oxbow
