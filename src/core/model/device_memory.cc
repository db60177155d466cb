// SPDX-License-Identifier: Apache-2.0
#include "core/model/device_memory.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "core/model/device.h"

namespace oxbow::model {
namespace {

constexpr size_t kSumOfAllPools = 0;  // The first statistic of each kind.

std::string GiB(double bytes) { return absl::StrFormat("%.2f GiB", bytes / (1 << 30)); }

// The allocator of all GPUs; null without one.
c10::DeviceAllocator* GpuAllocator() {
  return GpuCount() == 0 ? nullptr
                         : dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(at::kCUDA));
}

// The peak and the size of the GPU of which this process uses most; nothing without one.
std::optional<std::string> FullestGpu() {
  std::optional<std::string> text;
  auto* const allocator = GpuAllocator();
  if (allocator == nullptr || !allocator->initialized()) return text;
  int64_t most = 0;
  for (int gpu = 0; gpu < GpuCount(); ++gpu) {
    const auto device = static_cast<c10::DeviceIndex>(gpu);
    const int64_t peak = allocator->getDeviceStats(device).allocated_bytes[kSumOfAllPools].peak;
    if (peak <= most) continue;
    most = peak;
    text = absl::StrCat(
        "cuda:", gpu, " has ", GiB(static_cast<double>(allocator->getMemoryInfo(device).second)),
        ", of which this process had at most ", GiB(static_cast<double>(peak)), " in use at once");
  }
  return text;
}

}  // namespace

std::string MemoryText(const c10::OutOfMemoryError& error) {
  std::string line = error.what_without_backtrace();
  line = line.substr(0, line.find('\n'));
  const std::optional<std::string> gpu = FullestGpu();
  if (!gpu.has_value()) return line;
  const std::string tried = "Tried to allocate ";
  const size_t begin = line.find(tried);
  if (begin == std::string::npos) return *gpu;
  const std::string wanted = line.substr(begin + tried.size());
  return absl::StrCat("tried to allocate ", wanted.substr(0, wanted.find(". ")), "; ", *gpu);
}

uint64_t GpuBytes() {
  auto* const allocator = GpuAllocator();
  if (allocator == nullptr) return 0;
  uint64_t smallest = UINT64_MAX;
  for (int gpu = 0; gpu < GpuCount(); ++gpu) {
    smallest = std::min<uint64_t>(
        smallest, allocator->getMemoryInfo(static_cast<c10::DeviceIndex>(gpu)).second);
  }
  return smallest;
}

at::Tensor InPortions(int64_t rows, std::atomic<int64_t>& rows_max, std::string_view what,
                      const std::function<at::Tensor(int64_t first, int64_t count)>& f) {
  std::vector<at::Tensor> parts;
  for (int64_t first = 0; first < rows;) {
    const int64_t count = std::min(rows_max.load(), rows - first);
    std::string full;
    try {
      parts.push_back(f(first, count));
      first += count;
      continue;
    } catch (const c10::OutOfMemoryError& error) {
      if (count == 1) throw;
      full = MemoryText(error);
    }
    rows_max = count / 2;  // Here, where nothing of the attempt is held any more.
    OXBOW_LOG(Warning) << "out of memory: fewer rows at a time" << Field("of", what)
                       << Field("rows", rows_max.load()) << Field("reason", full);
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

absl::Status WithMemoryFor(const std::function<absl::Status()>& run, std::string_view remedy) {
  try {
    return run();
  } catch (const c10::OutOfMemoryError& error) {
    return OutOfMemoryError(
        absl::StrCat("out of memory: ", MemoryText(error), ": ", std::string(remedy)));
  }
}

}  // namespace oxbow::model
