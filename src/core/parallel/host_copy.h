// SPDX-License-Identifier: Apache-2.0
// A flat tensor in host memory: what must outlive a computation on a device without taking room
// there, as a copy that undoes a step, or what a device works on piece by piece.
//
// It is cut into pieces of 64 MiB, so that using it needs no more than that on the device. They
// are pinned where the tensor is on a GPU: copies then run at the bus's speed, in order with the
// kernels that read and write the tensor, and the host does not wait for them.
//
// A copy of a copy shares its pieces and copies nothing. Who then writes to a shared piece puts
// another one in its place: what is written to one of the two is not in the other. A piece that is
// written whole is never copied, one that is written in parts once. Each may go to a thread of its
// own.
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
  // For pieces that come from `device` and go there. Takes memory as it is written to.
  static HostCopy Zeros(int64_t length, at::Device device);
  HostCopy(const HostCopy& other);
  HostCopy& operator=(const HostCopy& other) { return *this = HostCopy(other); }
  HostCopy(HostCopy&&) = default;
  HostCopy& operator=(HostCopy&&) = default;

  int64_t length() const { return length_; }

  // Calls `use` with every piece in order, on `device`, and the place of its first element.
  void ForEach(at::Device device,
               const std::function<void(int64_t begin, const at::Tensor& piece)>& use) const;

  // `flat` [N] <- the copy.
  void PutBack(at::Tensor flat) const;

  // `part` [n] <- elements [begin, begin + n), and the other way. In order with the kernels of the
  // device that `part` is on.
  void Read(int64_t begin, at::Tensor part) const;
  void Write(int64_t begin, const at::Tensor& part);

  // The same, for a thread that has nothing to do with torch. Waits until the device has written
  // the copy; the constructor does not.
  void Read(int64_t begin, std::span<float> part) const;

  // Gives back the memory of the pieces before element `end`, which must not be read again.
  void Release(int64_t end);

 private:
  HostCopy(int64_t length, bool pinned);
  // A part of piece `place`: its first element there, and how many.
  struct Part {
    size_t place;
    int64_t inside;
    int64_t length;
  };
  std::vector<Part> PartsOf(int64_t begin, int64_t length) const;
  // To write to, of nobody else; around it is what was there, or zeros.
  at::Tensor Memory(const Part& part);
  void WaitUntilWritten() const;

  int64_t length_ = 0;
  int64_t released_ = 0;
  bool pinned_ = false;
  std::vector<at::Tensor> pieces_;          // Undefined: zeros, or released.
  mutable std::vector<bool> shared_;        // Pieces that another copy may have.
  std::shared_ptr<c10::Event> written_;     // Null until a GPU writes.
  mutable bool written_is_shared_ = false;  // Another copy waits for that event.
};

}  // namespace oxbow::parallel
