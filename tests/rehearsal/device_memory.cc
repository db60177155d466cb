// SPDX-License-Identifier: Apache-2.0
#include "tests/rehearsal/device_memory.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>

#include "tests/rehearsal/capture.h"
#include "tests/rehearsal/host_touch.h"
#include "tests/rehearsal/settings.h"
#include "tests/rehearsal/streams.h"

namespace oxbow::rehearsal {
namespace {

constexpr size_t kRound = 512;
constexpr size_t kRange = size_t{1} << 36;  // Addresses, not memory: pages come when touched.
constexpr size_t kDryRange = size_t{1} << 44;
constexpr int kPoison = 0xFF;  // All ones: NaN in every floating type, -1 in every integer.
constexpr int kDevicesMax = 16;

std::array<std::atomic<DeviceMemory*>, kDevicesMax> all_devices;
std::atomic<pid_t> used_by = 0;

char* Reserve(size_t bytes, int protection) {
  void* const address =
      mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(address != MAP_FAILED, "rehearsal device: mmap of ", bytes, " bytes failed");
  return static_cast<char*>(address);
}

bool IsDry() { return TheSettings().mode == Mode::kDry; }

size_t WholePages(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

std::string Gigabytes(size_t bytes) { return c10::str(static_cast<double>(bytes) / 1e9, " GB"); }

}  // namespace

DeviceMemory& DeviceMemory::Of(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < std::min(TheSettings().devices, kDevicesMax),
              "CUDA error: invalid device ordinal ", static_cast<int>(device));
  pid_t user = 0;
  used_by.compare_exchange_strong(user, getpid());
  TORCH_CHECK(user == 0 || user == getpid(),
              "CUDA error: initialization error: this process was forked after its parent had used "
              "a device");
  static std::mutex making;
  auto& place = all_devices[static_cast<size_t>(device)];
  if (place.load() == nullptr) {
    const std::scoped_lock lock(making);
    if (place.load() == nullptr) {
      DieWhenTheHostTouchesDeviceMemory();
      place.store(new DeviceMemory(device));  // Tensors may outlive every static object.
    }
  }
  return *place.load();
}

const DeviceMemory* DeviceMemory::Holding(const void* address) {
  for (const auto& place : all_devices) {
    const DeviceMemory* const memory = place.load();
    if (memory != nullptr && memory->Holds(address)) return memory;
  }
  return nullptr;
}

DeviceMemory::DeviceMemory(c10::DeviceIndex device)
    : device_(device),
      range_bytes_(IsDry() ? kDryRange : kRange),
      device_side_(Reserve(range_bytes_, PROT_NONE)),
      kernel_side_(IsDry() ? nullptr : Reserve(range_bytes_, PROT_READ | PROT_WRITE)) {}

bool DeviceMemory::Holds(const void* address) const {
  const auto* const place = static_cast<const char*>(address);
  return place >= device_side_ && place < device_side_ + range_bytes_;
}

void* DeviceMemory::KernelSide(const void* address) const {
  TORCH_INTERNAL_ASSERT(kernel_side_ != nullptr && Holds(address));
  return kernel_side_ + (static_cast<const char*>(address) - device_side_);
}

void* DeviceMemory::DeviceSide(const void* address) const {
  const auto* const place = static_cast<const char*>(address);
  if (kernel_side_ == nullptr || place < kernel_side_ || place >= kernel_side_ + range_bytes_) {
    return nullptr;
  }
  return device_side_ + (place - kernel_side_);
}

// The smallest free block that is large enough, or fresh memory.
size_t DeviceMemory::PlaceFor(size_t bytes, const Owner& owner) {
  auto& blocks = free_[owner];
  auto best = blocks.end();
  for (auto it = blocks.begin(); it != blocks.end(); ++it) {
    if (it->second >= bytes && (best == blocks.end() || it->second < best->second)) best = it;
  }
  if (best == blocks.end()) {
    const size_t offset = end_;
    TORCH_CHECK(end_ + bytes <= range_bytes_, "rehearsal device: out of addresses");
    end_ += bytes;
    if (kernel_side_ != nullptr) std::memset(kernel_side_ + offset, kPoison, bytes);
    return offset;
  }
  const auto [offset, available] = *best;
  blocks.erase(best);
  if (available > bytes) blocks.emplace(offset + bytes, available - bytes);
  return offset;
}

void DeviceMemory::Count(size_t bytes) {
  const Settings& settings = TheSettings();
  const bool planned = ++use_.allocations == settings.failing_allocation;
  if (planned || bytes > settings.memory_bytes - std::min(settings.memory_bytes, use_.held)) {
    C10_THROW_ERROR(OutOfMemoryError,
                    c10::str("CUDA out of memory. Tried to allocate ", Gigabytes(bytes), ". GPU ",
                             static_cast<int>(device_), " has ", Gigabytes(use_.held),
                             " in use, at most ", Gigabytes(use_.peak)));
  }
  use_.held += bytes;
  use_.peak = std::max(use_.peak, use_.held);
}

void* DeviceMemory::Take(size_t bytes, c10::StreamId stream, uint64_t pool) {
  if (bytes == 0) return nullptr;
  const size_t rounded = (bytes + kRound - 1) / kRound * kRound;
  const std::scoped_lock lock(mutex_);
  Count(rounded);
  const Owner owner = {pool == 0 ? stream : 0, pool};
  const size_t offset = PlaceFor(rounded, owner);
  taken_.emplace(offset, Block{rounded, owner});
  return device_side_ + offset;
}

void DeviceMemory::Give(void* address) {
  if (address == nullptr) return;
  const auto offset = static_cast<size_t>(static_cast<char*>(address) - device_side_);
  const std::scoped_lock lock(mutex_);
  const auto found = taken_.find(offset);
  TORCH_INTERNAL_ASSERT(found != taken_.end(), "freed twice, or never taken");
  const Block block = found->second;
  taken_.erase(found);
  use_.held -= block.bytes;
  if (kernel_side_ != nullptr) {
    Task poison = [at = kernel_side_ + offset, bytes = block.bytes] {
      std::memset(at, kPoison, bytes);
    };
    // A graph replays what it does to its own pool, and to nobody else's memory.
    if (IsCapturing() && block.owner.second != CapturePool()) {
      poison();
    } else {
      Enqueue(c10::Stream(c10::Stream::UNSAFE, {c10::kCUDA, device_}, block.owner.first),
              std::move(poison));
    }
  }
  PutBack(offset, block.bytes, block.owner);
}

void* DeviceMemory::TakePages(size_t bytes, bool held) {
  const std::scoped_lock lock(mutex_);
  const size_t offset = WholePages(end_), pages = WholePages(bytes);
  if (held) Count(pages);
  TORCH_CHECK(offset + pages <= range_bytes_, "rehearsal device: out of addresses");
  end_ = offset + pages;
  if (held && kernel_side_ != nullptr) std::memset(kernel_side_ + offset, kPoison, pages);
  return device_side_ + offset;
}

void DeviceMemory::GivePages(size_t bytes) {
  const std::scoped_lock lock(mutex_);
  use_.held -= WholePages(bytes);
}

void DeviceMemory::PutBack(size_t offset, size_t bytes, const Owner& owner) {
  auto& blocks = free_[owner];
  auto next = blocks.lower_bound(offset);
  if (next != blocks.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = blocks.erase(next);
  }
  if (next != blocks.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  blocks.emplace(offset, bytes);
}

void DeviceMemory::ReleasePool(uint64_t pool) {
  const std::scoped_lock lock(mutex_);
  const Owner anybody = {0, 0};
  for (auto& [offset, block] : taken_) {
    if (block.owner.second == pool) block.owner = anybody;
  }
  const auto found = free_.find({0, pool});
  if (found == free_.end()) return;
  const auto blocks = std::move(found->second);
  free_.erase(found);
  for (const auto& [offset, bytes] : blocks) PutBack(offset, bytes, anybody);
}

MemoryUse DeviceMemory::Use() const {
  const std::scoped_lock lock(mutex_);
  return use_;
}

void DeviceMemory::ResetPeak() {
  const std::scoped_lock lock(mutex_);
  use_.peak = use_.held;
}

}  // namespace oxbow::rehearsal
