// SPDX-License-Identifier: Apache-2.0
// Answers to what the rest of LibTorch asks about CUDA: how many GPUs, generators, pinned memory.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Allocator.h>

#include <vector>

#include "tests/rehearsal/device_memory.h"
#include "tests/rehearsal/pinned_memory.h"
#include "tests/rehearsal/settings.h"
#include "tests/rehearsal/streams.h"

namespace oxbow::rehearsal {
namespace {

struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}

  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return deviceCount() > 0; }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasPrimaryContext(at::DeviceIndex) const override { return true; }

  at::DeviceIndex deviceCount() const override {
    return static_cast<at::DeviceIndex>(TheSettings().devices);
  }
  int getNumGPUs() const override { return TheSettings().devices; }
  at::DeviceIndex current_device() const override { return CurrentDevice().index(); }
  at::DeviceIndex getCurrentDevice() const override { return CurrentDevice().index(); }
  void setCurrentDevice(at::DeviceIndex device) const override { SetCurrentDevice(device); }
  at::DeviceIndex exchangeDevice(at::DeviceIndex device) const override {
    const at::DeviceIndex before = CurrentDevice().index();
    if (device >= 0) SetCurrentDevice(device);
    return before;
  }
  at::DeviceIndex maybeExchangeDevice(at::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  void deviceSynchronize(at::DeviceIndex device) const override { SynchronizeDevice(device); }

  // CPU generators of the devices' own: draws on a device leave the CPU's numbers alone.
  const at::Generator& getDefaultGenerator(at::DeviceIndex device) const override {
    static std::vector<at::Generator> generators = [] {
      std::vector<at::Generator> made;
      for (int i = 0; i < TheSettings().devices; ++i)
        made.push_back(at::detail::createCPUGenerator());
      return made;
    }();
    return generators.at(static_cast<size_t>(device < 0 ? CurrentDevice().index() : device));
  }
  at::Generator getNewGenerator(at::DeviceIndex) const override {
    return at::detail::createCPUGenerator();
  }

  at::Device getDeviceFromPtr(void* address) const override {
    const DeviceMemory* const memory = DeviceMemory::Holding(address);
    TORCH_CHECK(memory != nullptr, "not an address of a device: ", address);
    return {at::kCUDA, memory->device()};
  }
  bool isPinnedPtr(const void* address) const override { return IsPinned(address); }
  at::Allocator* getPinnedMemoryAllocator() const override { return PinnedMemory(); }
  at::Allocator* getCUDADeviceAllocator() const override { return c10::GetAllocator(at::kCUDA); }

  bool hasCuDNN() const override { return true; }
  bool compiledWithCuDNN() const override { return true; }
  bool supportsDilatedConvolutionWithCuDNN() const override { return true; }
  bool supportsBFloat16ConvolutionWithCuDNNv8() const override { return true; }
  long versionCuDNN() const override { return 90000; }
  long versionRuntimeCuDNN() const override { return 90000; }
  std::string showConfig() const override { return "the rehearsal device\n"; }
};

}  // namespace
}  // namespace oxbow::rehearsal

// The registry's key is the class's name without a namespace.
namespace at {
using oxbow::rehearsal::CUDAHooks;
REGISTER_CUDA_HOOKS(CUDAHooks);
}  // namespace at
