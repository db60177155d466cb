// SPDX-License-Identifier: Apache-2.0
// Copies between host and device, and values that the host reads.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <map>
#include <mutex>
#include <utility>

#include "tests/rehearsal/capture.h"
#include "tests/rehearsal/device_log.h"
#include "tests/rehearsal/kernel_view.h"
#include "tests/rehearsal/launch.h"
#include "tests/rehearsal/pinned_memory.h"
#include "tests/rehearsal/settings.h"
#include "tests/rehearsal/streams.h"

namespace oxbow::rehearsal {
namespace {

constexpr size_t kLarge = size_t{1} << 25;  // Bytes.

bool IsDry() { return TheSettings().mode == Mode::kDry; }

double Size(const at::Tensor& tensor) {
  return static_cast<double>(tensor.numel()) * static_cast<double>(tensor.element_size());
}

c10::Stream StreamOf(const at::Tensor& tensor) { return CurrentStream(tensor.device().index()); }

void Refuse(const char* what) {
  TORCH_CHECK(!IsCapturing(),
              "CUDA error: operation not permitted when stream is capturing: ", what);
}

// Pinned memory that queued copies to a device will read.
class PendingReads {
 public:
  void Add(const at::Tensor& source) {
    const std::scoped_lock lock(mutex_);
    ++ends_[BeginOf(source)].second;
    ends_[BeginOf(source)].first = BeginOf(source) + source.nbytes();
  }
  void Remove(const at::Tensor& source) {
    const std::scoped_lock lock(mutex_);
    const auto found = ends_.find(BeginOf(source));
    if (--found->second.second == 0) ends_.erase(found);
  }
  bool Overlap(const at::Tensor& memory) const {
    const std::scoped_lock lock(mutex_);
    const char* const begin = BeginOf(memory);
    for (const auto& [start, end_and_count] : ends_) {
      if (start < begin + memory.nbytes() && begin < end_and_count.first) return true;
    }
    return false;
  }

 private:
  static const char* BeginOf(const at::Tensor& tensor) {
    return static_cast<const char*>(tensor.const_data_ptr());
  }
  mutable std::mutex mutex_;
  std::map<const char*, std::pair<const char*, int>> ends_;
};

PendingReads& TheReads() {
  static auto* const reads = new PendingReads;
  return *reads;
}

// Pageable memory is read before the call returns, pinned memory when the stream gets there. Where
// nobody asked for non_blocking, LibTorch waits for the stream.
void ToDevice(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const bool pinned = IsPinned(from.const_data_ptr());
  if (!pinned) Refuse("a copy of pageable host memory");
  TheLog().Moved(to.device().index(), Transfer::kHostToDevice, Size(from), !non_blocking);
  if (IsDry()) return;
  const bool later = non_blocking && pinned;
  const bool queued = TheSettings().mode == Mode::kLate || IsCapturing();
  const at::Tensor source = later || !queued ? from : from.clone();
  const bool once = later && !IsCapturing();
  if (once) TheReads().Add(source);
  Enqueue(StreamOf(to), [view = KernelView(to), source, once] {
    const KernelScope scope;
    view.Tensor().copy_(source);
    if (once) TheReads().Remove(source);
  });
  if (pinned && !later) Synchronize(StreamOf(to));
}

// Until a copy into pinned memory has run, a late device shows NaN there, unless a copy to the
// device that is queued before it still reads what was there.
void ToHost(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const bool later = non_blocking && IsPinned(to.const_data_ptr());
  if (!later) Refuse("the host reads a tensor");
  TheLog().Moved(from.device().index(), Transfer::kDeviceToHost, Size(from), !later);
  const KernelScope scope;
  if (IsDry()) {
    // A copy that goes behind costs the host nothing. Nobody reads the values of a large one,
    // or of a part of one.
    if (!later && to.storage().nbytes() < kLarge) to.zero_();
    return;
  }
  const bool shows = later && TheSettings().mode == Mode::kLate && to.is_floating_point();
  if (shows && !TheReads().Overlap(to)) {
    to.fill_(std::numeric_limits<double>::quiet_NaN());
  }
  Enqueue(StreamOf(from), [view = KernelView(from), to] {
    const KernelScope at_work;
    to.copy_(view.Tensor());
  });
  if (!later) Synchronize(StreamOf(from));
}

void OnDevices(const at::Tensor& to, const at::Tensor& from) {
  if (to.device() != from.device()) {
    TheLog().Moved(to.device().index(), Transfer::kDeviceToDevice, Size(from), /*waits=*/false);
    BlockOn(RecordEvent(StreamOf(from)), StreamOf(to));
  }
  if (IsDry()) return Count({.name = "aten::copy_", .reads = {from}, .writes = {to}});
  Run({.name = "aten::copy_", .reads = {from}, .writes = {to}},
      [to = KernelView(to), from = KernelView(from)] { to.Tensor().copy_(from.Tensor()); });
}

at::Tensor& Copy(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.is_same(source) || self.numel() == 0) return self;
  const at::Tensor from = source.expand(self.sizes());
  if (!self.is_cuda()) {
    ToHost(self, from, non_blocking);
  } else if (!source.is_cuda()) {
    ToDevice(self, from, non_blocking);
  } else {
    OnDevices(self, from);
  }
  return self;
}

at::Scalar Value(const at::Tensor& self) {
  Refuse("item()");
  TheLog().Moved(self.device().index(), Transfer::kValue, Size(self), /*waits=*/true);
  if (IsDry()) return at::Scalar(1);
  Synchronize(StreamOf(self));
  const KernelScope scope;
  return KernelView(self).Tensor().item();
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("copy_", TORCH_FN(Copy));
  library.impl("_local_scalar_dense", TORCH_FN(Value));
}

}  // namespace
}  // namespace oxbow::rehearsal
