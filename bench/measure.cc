// SPDX-License-Identifier: Apache-2.0
#include "bench/measure.h"

#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/record_function.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string_view>
#include <vector>

#include "base/statistics.h"
#include "bench/kernel_profile.h"

namespace oxbow::bench {
namespace {

std::atomic<double> flop_so_far = 0;

// The operations of a running operator for each element of its first result.
struct Counted : at::ObserverContext {
  explicit Counted(double flop) : per_element(flop) {}
  const double per_element;
};

double SizeOf(const c10::IValue& tensor, int64_t dimension) {
  return static_cast<double>(tensor.toTensor().size(dimension));
}

double PerElement(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  if (name == "mkldnn::_linear_pointwise") return 2 * SizeOf(inputs[0], -1);
  if (!name.starts_with("aten::")) return 0;
  name.remove_prefix(6);
  if (name.ends_with('_')) name.remove_suffix(1);
  if (name == "mm" || name == "bmm") return 2 * SizeOf(inputs[0], -1);
  if (name == "addmm" || name == "baddbmm" || name == "_addmm_activation") {
    return 2 * SizeOf(inputs[1], -1);
  }
  if (name == "convolution") {
    const at::Tensor& weight = inputs[1].toTensor();
    return 2 * static_cast<double>(weight.numel() / weight.size(0));
  }
  // The kernels alone: the plain form is made of products.
  if (!name.starts_with("_scaled_dot_product") || name.find("math") != name.npos) return 0;
  return name.ends_with("_backward") ? 10 * SizeOf(inputs[2], 2) : 4 * SizeOf(inputs[1], 2);
}

std::unique_ptr<at::ObserverContext> Starts(const at::RecordFunction& function) {
  return std::make_unique<Counted>(PerElement(function.name(), function.inputs()));
}

void Ends(const at::RecordFunction& function, at::ObserverContext* context) {
  const double per_element = static_cast<Counted*>(context)->per_element;
  if (per_element == 0 || function.outputs().empty()) return;
  flop_so_far += per_element * static_cast<double>(function.outputs()[0].toTensor().numel());
}

void PrintKernels(size_t count, const std::function<void()>& work) {
  const std::vector<KernelTime> kernels = ProfileKernels(work);
  double all = 0;
  int64_t launches = 0;
  for (const KernelTime& kernel : kernels) {
    all += kernel.milliseconds;
    launches += kernel.launches;
  }
  std::printf("    %7.2f ms in %ld kernels\n", all, launches);
  for (size_t i = 0; i < std::min(kernels.size(), count); ++i) {
    std::printf("    %7.2f ms %5ld x %.140s\n", kernels[i].milliseconds, kernels[i].launches,
                kernels[i].name.c_str());
  }
}

}  // namespace

double MedianMilliseconds(int repeat, at::Device device, const std::function<void()>& work) {
  const auto wait = [&] {
    if (device.is_cuda()) at::detail::getCUDAHooks().deviceSynchronize(device.index());
  };
  std::vector<double> times;
  for (int i = 0; i <= repeat; ++i) {
    wait();
    const auto start = std::chrono::steady_clock::now();
    work();
    wait();
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start;
    if (i > 0) times.push_back(spent.count());
  }
  return Quantile(times, 0.5);
}

double FlopOf(const std::function<void()>& work) {
  flop_so_far = 0;
  const at::CallbackHandle handle = at::addGlobalCallback(at::RecordFunctionCallback(Starts, Ends)
                                                              .needsInputs(true)
                                                              .needsOutputs(true)
                                                              .scopes({at::RecordScope::FUNCTION}));
  work();
  at::removeCallback(handle);
  return flop_so_far;
}

double PeakMebibytes(at::Device device) {
  if (device.is_cuda()) {
    const auto stats = c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(device.index());
    return static_cast<double>(stats.allocated_bytes[0].peak) / (1 << 20);
  }
  std::ifstream status("/proc/self/status");
  double kibibytes = 0;
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") status >> kibibytes;
  }
  return kibibytes / 1024;
}

void ForgetPeak(at::Device device) {
  if (!device.is_cuda()) return;
  auto* const allocator = c10::getDeviceAllocator(at::kCUDA);
  allocator->emptyCache();
  allocator->resetPeakStats(device.index());
}

double Measure(const std::string& what, const Report& report, at::Device device,
               const std::function<void()>& work) {
  const double tflop = FlopOf(work) / 1e12;
  const double milliseconds = MedianMilliseconds(report.repeat, device, work);
  const double rate = 1e3 * tflop / milliseconds;
  std::printf("%-22s %9.2f ms  %8.4g TFLOP/s  %8.4g TFLOP", what.c_str(), milliseconds, rate,
              tflop);
  if (report.peak_tflops > 0) std::printf("  MFU %.1f %%", 100 * rate / report.peak_tflops);
  std::printf("\n");
  if (report.kernels > 0 && device.is_cuda()) PrintKernels(report.kernels, work);
  std::fflush(stdout);
  return milliseconds;
}

}  // namespace oxbow::bench
