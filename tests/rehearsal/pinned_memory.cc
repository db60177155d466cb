// SPDX-License-Identifier: Apache-2.0
#include "tests/rehearsal/pinned_memory.h"

#include <c10/core/CPUAllocator.h>

#include <map>
#include <mutex>

namespace oxbow::rehearsal {
namespace {

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override;
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  bool Has(const void* address) {
    const std::scoped_lock lock(mutex_);
    const auto after = blocks_.upper_bound(static_cast<const char*>(address));
    if (after == blocks_.begin()) return false;
    const auto& [start, bytes] = *std::prev(after);
    return address < start + bytes;
  }
  void Add(void* address, size_t bytes) {
    const std::scoped_lock lock(mutex_);
    blocks_[static_cast<char*>(address)] = bytes;
  }
  void Forget(void* address) {
    const std::scoped_lock lock(mutex_);
    blocks_.erase(static_cast<char*>(address));
  }

 private:
  std::mutex mutex_;
  std::map<const char*, size_t> blocks_;
};

Allocator& Pinned() {
  static auto* const pinned = new Allocator;
  return *pinned;
}

// `context` is what owns the memory: the host's allocator, which may keep more than an address.
void Delete(void* context) {
  auto* const owner = static_cast<c10::DataPtr*>(context);
  Pinned().Forget(owner->get());
  delete owner;
}

c10::DataPtr Allocator::allocate(size_t bytes) {
  auto* const owner = new c10::DataPtr(c10::GetCPUAllocator()->allocate(bytes));
  void* const address = owner->get();
  if (address != nullptr) Add(address, bytes);
  return {address, owner, &Delete, c10::kCPU};
}

}  // namespace

c10::Allocator* PinnedMemory() { return &Pinned(); }
bool IsPinned(const void* address) { return Pinned().Has(address); }

}  // namespace oxbow::rehearsal

// The CUDA runtime's part for memory from elsewhere (core/parallel/node_memory.cc).
extern "C" {
__attribute__((visibility("default"))) int cudaHostRegister(void* address, size_t bytes,
                                                            unsigned /*flags*/) {
  oxbow::rehearsal::Pinned().Add(address, bytes);
  return 0;
}
__attribute__((visibility("default"))) int cudaHostUnregister(void* address) {
  oxbow::rehearsal::Pinned().Forget(address);
  return 0;
}
}
