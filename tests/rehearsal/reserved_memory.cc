// SPDX-License-Identifier: Apache-2.0
#include "tests/rehearsal/reserved_memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

namespace oxbow::rehearsal {
namespace {

constexpr size_t kLarge = size_t{1} << 30;

struct Mapping {
  void* address;
  size_t bytes;
};

void Unmap(void* context) {
  const auto* const mapping = static_cast<Mapping*>(context);
  munmap(mapping->address, mapping->bytes);
  delete mapping;
}

class Reserving final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < kLarge) return c10::GetDefaultCPUAllocator()->allocate(bytes);
    void* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(address != MAP_FAILED, "cannot reserve ", bytes, " bytes");
    return {address, new Mapping{address, bytes}, &Unmap, c10::kCPU};
  }
  // Raw memory is never that large.
  c10::DeleterFnPtr raw_deleter() const override {
    return c10::GetDefaultCPUAllocator()->raw_deleter();
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

void ReserveLargeTensors() {
  static auto* const reserving = new Reserving;
  c10::SetCPUAllocator(reserving, /*priority=*/1);
}

}  // namespace oxbow::rehearsal
