// SPDX-License-Identifier: Apache-2.0
// Devices, streams and events for LibTorch's guards and its autograd engine.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "tests/rehearsal/settings.h"
#include "tests/rehearsal/streams.h"

namespace oxbow::rehearsal {
namespace {

struct DeviceGuardImpl final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(TheSettings().devices);
  }

  c10::Device getDevice() const override { return CurrentDevice(); }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() < deviceCount(), "CUDA error: invalid device ordinal ",
                static_cast<int>(device.index()));
    if (device.has_index()) SetCurrentDevice(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) SetCurrentDevice(device.index());
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = CurrentDevice();
    setDevice(device);
    return before;
  }

  c10::Stream getStream(c10::Device device) const override {
    return CurrentStream(device.has_index() ? device.index() : CurrentDevice().index());
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return NewStream(device.index());
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return NewStream(device.index());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return ExchangeStream(stream); }
  bool queryStream(const c10::Stream& stream) const override { return IsIdle(stream); }
  void synchronizeStream(const c10::Stream& stream) const override { Synchronize(stream); }
  void synchronizeDevice(c10::DeviceIndex device) const override { SynchronizeDevice(device); }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    const Event recorded = RecordEvent(stream);
    destroyEvent(*event, stream.device_index());
    *event = new Event(recorded);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) BlockOn(*static_cast<Event*>(event), stream);
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || IsDone(*static_cast<Event*>(event));
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) SynchronizeEvent(*static_cast<Event*>(event));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
};

C10_REGISTER_GUARD_IMPL(CUDA, DeviceGuardImpl);

}  // namespace
}  // namespace oxbow::rehearsal
