// SPDX-License-Identifier: Apache-2.0
// The memory of tensors on a CPU: what is alive, the most that ever was, and allocations that are
// refused as a full device refuses them.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace oxbow::testing {

// Counts bytes that are alive, and the most that ever were since Reset.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    {
      const std::lock_guard lock(mutex_);
      if (refuses_ != nullptr && refuses_(bytes)) {
        C10_THROW_ERROR(OutOfMemoryError, "no room on the device for " + std::to_string(bytes));
      }
    }
    void* memory = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
    const std::lock_guard lock(mutex_);
    sizes_[memory] = bytes;
    alive_ += static_cast<int64_t>(bytes);
    most_ = std::max(most_, alive_);
    return {memory, memory, &Free, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  int64_t alive() const { return alive_; }
  int64_t most() const { return most_; }
  void Reset() { most_ = alive_; }

  // Allocations for which `refuses` answers true throw c10::OutOfMemoryError. It is asked by the
  // thread that allocates, one at a time. Null: none.
  void Refuse(std::function<bool(size_t bytes)> refuses) {
    const std::lock_guard lock(mutex_);
    refuses_ = std::move(refuses);
  }

  // From now on all tensors of the process are counted.
  static void Install() { c10::SetCPUAllocator(&Get(), /*priority=*/255); }
  static CountingAllocator& Get() {
    static auto* allocator = new CountingAllocator;
    return *allocator;
  }

 private:
  static void Free(void* memory) {
    CountingAllocator& self = Get();
    {
      const std::lock_guard lock(self.mutex_);
      self.alive_ -= static_cast<int64_t>(self.sizes_.extract(memory).mapped());
    }
    std::free(memory);
  }

  std::mutex mutex_;
  std::function<bool(size_t bytes)> refuses_;
  std::map<void*, size_t> sizes_;
  int64_t alive_ = 0, most_ = 0;
};

}  // namespace oxbow::testing
