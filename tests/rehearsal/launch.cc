// SPDX-License-Identifier: Apache-2.0
#include "tests/rehearsal/launch.h"

#include "tests/rehearsal/capture.h"
#include "tests/rehearsal/device_log.h"
#include "tests/rehearsal/settings.h"

namespace oxbow::rehearsal {
namespace {

at::Device DeviceOf(const Launch& launch) {
  for (const auto* tensors : {&launch.writes, &launch.reads}) {
    for (const at::Tensor& tensor : *tensors) {
      if (IsOnDevice(tensor)) return tensor.device();
    }
  }
  return CurrentDevice();
}

}  // namespace

bool LaunchesAreDeferred() { return TheSettings().mode != Mode::kNow || IsCapturing(); }

void Count(const Launch& launch) {
  double bytes = 0;
  for (const at::Tensor& tensor : launch.reads) bytes += BytesOf(tensor);
  for (const at::Tensor& tensor : launch.writes) bytes += BytesOf(tensor);
  TheLog().Kernel(DeviceOf(launch).index(), launch.name, bytes, launch.flop);
}

void RunOnOneDevice(const Launch& launch, Task work) {
  const at::Device device = DeviceOf(launch);
  for (const auto* tensors : {&launch.reads, &launch.writes}) {
    for (const at::Tensor& tensor : *tensors) {
      if (tensor.defined() && tensor.device() != device) {
        RefuseTwoDevices(launch.name, device, tensor.device());
      }
    }
  }
  Run(launch, std::move(work));
}

void Run(const Launch& launch, Task work) {
  Count(launch);
  if (TheSettings().mode == Mode::kDry) return;
  Enqueue(CurrentStream(DeviceOf(launch).index()), [work = std::move(work)] {
    const KernelScope scope;
    work();
  });
}

}  // namespace oxbow::rehearsal
