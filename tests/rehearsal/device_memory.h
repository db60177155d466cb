// SPDX-License-Identifier: Apache-2.0
// The memory of one rehearsed GPU.
//
// It has two ranges of addresses of one length. Tensors have addresses of the device's range, which
// nobody may read or write: a host that touches one dies with a line that says so (host_touch.cc).
// Kernels use the other range, at the same offset. Fresh and freed memory is NaN in every floating
// type. A dry device has the first range alone.
//
// As in CUDA's caching allocator a freed block goes to the next allocation of the stream that it
// was taken on, and of no other; sizes are rounded up to 512 bytes; memory taken while a graph is
// captured belongs to the graph's pool.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace oxbow::rehearsal {

struct MemoryUse {
  size_t held = 0;
  size_t peak = 0;
  uint64_t allocations = 0;
};

class DeviceMemory {
 public:
  // The GPU's memory. Throws if there is no such GPU, or in a process that was forked after its
  // parent had used a device: CUDA does not survive a fork.
  static DeviceMemory& Of(c10::DeviceIndex device);
  // The GPU that an address belongs to, or null for a host's address. Never throws.
  static const DeviceMemory* Holding(const void* address);

  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Throws c10::OutOfMemoryError. Takes blocks that `stream` freed, or those of a graph's `pool`
  // (0: none).
  void* Take(size_t bytes, c10::StreamId stream, uint64_t pool);
  // Poisons the block on the stream it was taken on, after what that stream has still to do.
  void Give(void* address);
  // Whole pages behind all that was taken so far, or addresses alone where others of a machine hold
  // the memory (shared_blocks.cc). They do not come back to Take. Throws as Take.
  void* TakePages(size_t bytes, bool held);
  void GivePages(size_t bytes);  // Pages that were held.
  // The pool's free blocks are anybody's from now on.
  void ReleasePool(uint64_t pool);

  // Where kernels see the device's address. Requires a device that is not dry.
  void* KernelSide(const void* address) const;
  // The device's address of one that kernels see, or null.
  void* DeviceSide(const void* address) const;

  c10::DeviceIndex device() const { return device_; }
  MemoryUse Use() const;
  void ResetPeak();

 private:
  using Owner = std::pair<c10::StreamId, uint64_t>;  // Stream and pool.
  struct Block {
    size_t bytes = 0;
    Owner owner;
  };

  explicit DeviceMemory(c10::DeviceIndex device);
  bool Holds(const void* address) const;
  void Count(size_t bytes);
  size_t PlaceFor(size_t bytes, const Owner& owner);
  void PutBack(size_t offset, size_t bytes, const Owner& owner);

  const c10::DeviceIndex device_;
  const size_t range_bytes_;
  char* const device_side_;
  char* const kernel_side_;  // Null if dry.

  mutable std::mutex mutex_;
  std::map<size_t, Block> taken_;                   // By offset.
  std::map<Owner, std::map<size_t, size_t>> free_;  // Bytes by offset.
  size_t end_ = 0;                                  // Bytes behind it were never taken.
  MemoryUse use_;
};

}  // namespace oxbow::rehearsal
