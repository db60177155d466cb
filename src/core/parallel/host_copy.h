// SPDX-License-Identifier: Apache-2.0
// A copy of a flat tensor in host memory: what must outlive a computation on a device without
// taking room there.
//
// It is cut into pieces of 64 MiB, so that using it needs no more than that on the device. They
// are pinned where the tensor is on a GPU: copies then run at the bus's speed, in order with the
// kernels that read and write the tensor, and the host does not wait for them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace c10 {
struct Event;
}

namespace oxbow::parallel {

class HostCopy {
 public:
  explicit HostCopy(const at::Tensor& flat);  // [N], float32.

  // Calls `use` with every piece in order, on `device`, and the place of its first element.
  void ForEach(at::Device device,
               const std::function<void(int64_t begin, const at::Tensor& piece)>& use) const;

  // `flat` [N] <- the copy.
  void PutBack(at::Tensor flat) const;

  // `part` [n] <- elements [begin, begin + n).
  void Read(int64_t begin, at::Tensor part) const;

  // The same, for a thread that has nothing to do with torch. Waits until the device has written
  // the copy; the constructor does not.
  void Read(int64_t begin, std::span<float> part) const;

  // Gives back the memory of the pieces before element `end`, which are not read again.
  void Release(int64_t end);

 private:
  std::vector<at::Tensor> pieces_;
  std::shared_ptr<c10::Event> written_;  // Null on a CPU.
};

}  // namespace oxbow::parallel
