// SPDX-License-Identifier: Apache-2.0
#include "core/model/device_memory.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "core/model/device.h"

namespace oxbow::model {
namespace {

constexpr size_t kSumOfAllPools = 0;  // The first statistic of each kind.

// In CUDA's words: the build has no code for this GPU, or none that this driver takes.
constexpr const char* kUnfit[] = {"no kernel image is available",
                                  "device kernel image is invalid",
                                  "invalid device function",
                                  "named symbol not found",
                                  "unsupported toolchain",
                                  "PTX JIT compil",
                                  "driver version is insufficient",
                                  "unsupported display driver",
                                  "forward compatibility was attempted"};

std::string GiB(double bytes) { return absl::StrFormat("%.2f GiB", bytes / (1 << 30)); }

// The allocator of all GPUs; null without one.
c10::DeviceAllocator* GpuAllocator() {
  return GpuCount() == 0 ? nullptr
                         : dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(at::kCUDA));
}

// The peak of a GPU's memory in this process.
int64_t PeakOf(c10::DeviceAllocator& allocator, int gpu) {
  return allocator.getDeviceStats(static_cast<c10::DeviceIndex>(gpu))
      .allocated_bytes[kSumOfAllPools]
      .peak;
}

// The GPU that torch's line names, or else the one of which this process has used most.
int FullGpu(c10::DeviceAllocator& allocator, const std::string& line) {
  static constexpr char kNames[] = ". GPU ";
  int named = -1;
  const size_t at = line.find(kNames);
  if (at != std::string::npos) {
    const size_t begin = at + sizeof(kNames) - 1;
    const size_t end = line.find_first_not_of("0123456789", begin);
    if (absl::SimpleAtoi(line.substr(begin, end - begin), &named) && named < GpuCount()) {
      return named;
    }
  }
  int fullest = 0;
  for (int gpu = 1; gpu < GpuCount(); ++gpu) {
    if (PeakOf(allocator, gpu) > PeakOf(allocator, fullest)) fullest = gpu;
  }
  return fullest;
}

// The peak and the size of the GPU that is full; nothing without one.
std::optional<std::string> FullGpuText(const std::string& line) {
  auto* const allocator = GpuAllocator();
  if (allocator == nullptr || !allocator->initialized()) return std::nullopt;
  const int gpu = FullGpu(*allocator, line);
  const size_t size = allocator->getMemoryInfo(static_cast<c10::DeviceIndex>(gpu)).second;
  return absl::StrCat("cuda:", gpu, " has ", GiB(static_cast<double>(size)),
                      ", of which this process had at most ",
                      GiB(static_cast<double>(PeakOf(*allocator, gpu))), " in use at once");
}

}  // namespace

std::string MemoryText(const c10::OutOfMemoryError& error) {
  std::string line = error.what_without_backtrace();
  line = line.substr(0, line.find('\n'));
  const std::optional<std::string> gpu = FullGpuText(line);
  if (!gpu.has_value()) return line;
  const std::string tried = "Tried to allocate ";
  const size_t begin = line.find(tried);
  if (begin == std::string::npos) return *gpu;
  const std::string wanted = line.substr(begin + tried.size());
  return absl::StrCat("tried to allocate ", wanted.substr(0, wanted.find(". ")), "; ", *gpu);
}

// Torch's error has no type of its own: "[enforce fail at alloc_cpu.cpp:127] .
// DefaultCPUAllocator: can't allocate memory: you tried to allocate 64 bytes. Error code 12",
// "DefaultCPUAllocator: not enough memory: ..."; of pinned memory (cudaHostAlloc) "CUDA error: out
// of memory".
std::optional<std::string> HostMemoryText(const std::exception& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return std::nullopt;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "host memory is full";
  const auto* const torch = dynamic_cast<const c10::Error*>(&error);
  if (torch == nullptr) return std::nullopt;
  const std::string line = torch->what_without_backtrace();
  if (line.find("DefaultCPUAllocator") == std::string::npos) {
    return line.find("out of memory") == std::string::npos
               ? std::nullopt
               : std::optional(
                     "host memory that a GPU reads is full, or what CUDA takes for itself");
  }
  const std::string tried = "you tried to allocate ";
  const size_t begin = line.find(tried);
  double bytes = 0;
  const std::string number =
      begin == std::string::npos
          ? ""
          : line.substr(begin + tried.size(),
                        line.find(' ', begin + tried.size()) - begin - tried.size());
  if (!absl::SimpleAtod(number, &bytes)) return "host memory is full";
  return absl::StrCat("host memory: tried to allocate ", GiB(bytes));
}

// "CUDA error: an illegal memory access was encountered", "CUDA error: uncorrectable ECC error
// encountered", "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED".
std::optional<absl::Status> DeviceErrorOf(const std::exception& error) {
  const auto* const torch = dynamic_cast<const c10::Error*>(&error);
  if (torch == nullptr || dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    return std::nullopt;
  }
  const std::string text = torch->what_without_backtrace();
  for (const char* const begin : {"CUDA error: ", "CUDA driver error: ", "cuDNN error: "}) {
    const size_t at = text.find(begin);
    if (at == std::string::npos) continue;
    const std::string line = text.substr(at, text.find('\n', at) - at);
    const bool full = line.find("out of memory") != std::string::npos ||
                      line.find("ALLOC_FAILED") != std::string::npos;
    if (full) return std::nullopt;
    const bool unfit = std::any_of(std::begin(kUnfit), std::end(kUnfit), [&](const char* words) {
      return absl::StrContains(line, words);
    });
    if (!unfit) return DeviceError(kExitDeviceLost, line);
    return DeviceError(kExitUsage,
                       absl::StrCat(line,
                                    ": this build of LibTorch or this driver does not fit "
                                    "the GPU; take others (oxbow --version, nvidia-smi)"));
  }
  return std::nullopt;
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
  } catch (const std::exception& error) {
    if (auto device = DeviceErrorOf(error)) return *std::move(device);
    const std::optional<std::string> host = HostMemoryText(error);
    if (!host.has_value()) throw;
    return OutOfMemoryError(
        absl::StrCat("out of memory: ", *host,
                     ": give this process more, or let it keep less there (on a CPU lower "
                     "batch.rows_per_pass; with a GPU take offload_weights or "
                     "offload_optimizer out of model.memory)"));
  }
}

}  // namespace oxbow::model
