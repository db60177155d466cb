// SPDX-License-Identifier: Apache-2.0
// LibTorch's allocator of CUDA memory.
#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "tests/rehearsal/capture.h"
#include "tests/rehearsal/device_memory.h"
#include "tests/rehearsal/settings.h"
#include "tests/rehearsal/streams.h"

namespace oxbow::rehearsal {
namespace {

void Delete(void* address) {
  if (address == nullptr) return;
  const DeviceMemory* const memory = DeviceMemory::Holding(address);
  TORCH_INTERNAL_ASSERT(memory != nullptr);
  DeviceMemory::Of(memory->device()).Give(address);
}

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device = CurrentDevice();
    void* const address = DeviceMemory::Of(device.index())
                              .Take(bytes, CurrentStream(device.index()).id(), CapturePool());
    return {address, address, &Delete, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }
  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK(false, "rehearsal device: storages are copied by tensors");
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  // A block that another stream still reads is given back too early by a program that does not say
  // so; one that does say so holds it until that stream has caught up.
  void recordStream(const c10::DataPtr&, c10::Stream stream) override { Synchronize(stream); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const MemoryUse use = DeviceMemory::Of(device).Use();
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* bytes : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes}) {
      (*bytes)[0].current = static_cast<int64_t>(use.held);
      (*bytes)[0].peak = static_cast<int64_t>(use.peak);
    }
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override { DeviceMemory::Of(device).ResetPeak(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const size_t all = TheSettings().memory_bytes;
    return {all - DeviceMemory::Of(device).Use().held, all};
  }
};

Allocator allocator;
REGISTER_ALLOCATOR(c10::DeviceType::CUDA, &allocator)

}  // namespace
}  // namespace oxbow::rehearsal
