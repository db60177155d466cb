// SPDX-License-Identifier: Apache-2.0
// Times, operations, memory and kernels of networks, as benchmarks print them.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <functional>
#include <string>

namespace oxbow::bench {

// The median of `repeat` runs, in ms, after one that is not counted; the device is waited for.
double MedianMilliseconds(int repeat, at::Device device, const std::function<void()>& work);

// Floating-point operations of the products, convolutions and attentions that `work` runs, counted
// from their shapes: a multiplication and an addition are two. Attention's backward pass counts 2.5
// times its forward pass. Other operators count none, nor do convolutions' backward passes.
double FlopOf(const std::function<void()>& work);

// Memory that the device's allocator has given out at most; of a CPU, what the process has held.
double PeakMebibytes(at::Device device);
void ForgetPeak(at::Device device);

struct Report {
  int repeat = 3;
  size_t kernels = 0;      // So many of a GPU's longest kernels are printed.
  double peak_tflops = 0;  // The device's; 0: no MFU is printed.
};

// Runs `work` for one line of its time and rate, and the kernels:
//   forward                50.1 ms    358.3 TFLOP/s    17.95 TFLOP  MFU 36.2 %
// Returns the milliseconds.
double Measure(const std::string& what, const Report& report, at::Device device,
               const std::function<void()>& work);

}  // namespace oxbow::bench
