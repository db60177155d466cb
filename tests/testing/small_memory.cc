// SPDX-License-Identifier: Apache-2.0
// A CPU without room for a tensor of more than OXBOW_TENSOR_BYTES_MAX bytes, for the process that
// preloads this and is named OXBOW_TENSOR_PROCESS: torch throws what it throws on a full GPU.
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <errno.h>

#include <cstdlib>
#include <string>

namespace {

class SmallMemory final : public c10::Allocator {
 public:
  SmallMemory(c10::Allocator& memory, size_t bytes_max) : memory_(memory), bytes_max_(bytes_max) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes > bytes_max_) {
      C10_THROW_ERROR(OutOfMemoryError,
                      "Tried to allocate " + std::to_string(bytes) + " bytes. No device has more.");
    }
    return memory_.allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return memory_.raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    memory_.copy_data(to, from, bytes);
  }

 private:
  c10::Allocator& memory_;
  const size_t bytes_max_;
};

const bool installed = [] {
  const char* process = std::getenv("OXBOW_TENSOR_PROCESS");
  const char* bytes = std::getenv("OXBOW_TENSOR_BYTES_MAX");
  if (process == nullptr || bytes == nullptr ||
      process != std::string(program_invocation_short_name)) {
    return false;
  }
  static SmallMemory memory(*c10::GetCPUAllocator(), std::strtoull(bytes, nullptr, 10));
  c10::SetCPUAllocator(&memory, /*priority=*/255);
  return true;
}();

}  // namespace
