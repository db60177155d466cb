// SPDX-License-Identifier: Apache-2.0
// The device of weights, and the type in which it multiplies. Latents, noise and everything that
// is not a network stay on the CPU: a network takes its inputs to where its weights are and its
// velocities back.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "absl/status/statusor.h"

namespace oxbow::model {

int GpuCount();

// "cpu", "cuda:N", or "cuda" for the GPU of number `local_rank`. kInvalidArgument for another name
// and for a GPU where the build has no CUDA, kUnavailable if there is no such device.
absl::StatusOr<at::Device> DeviceNamed(const std::string& name, int local_rank = 0);

// Text for a program's first lines where it runs on a GPU and its build has no fused kernels;
// empty: there is nothing to say.
std::string MissingKernelsText(at::Device device);

// From here on this process computes the same bits on a GPU each time: backward passes add in a
// fixed order, and attention takes flash kernels, since those of cuDNN do not. An operator without
// such an algorithm throws. Nothing changes for a CPU. Call it before the GPU is used. Not `on`:
// the fastest algorithms again.
void UseDeterministicAlgorithms(at::Device device, bool on = true);

// Products in a shorter type than their operands': at::autocast for one scope and this thread.
// Matrix products and attention are computed in `dtype`, norms and sums in float32, as PyTorch's
// autocast lists say. float32 changes nothing.
class AutocastScope {
 public:
  AutocastScope(c10::DeviceType device, c10::ScalarType dtype);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const c10::DeviceType device_;
  const bool active_;
  bool was_enabled_ = false;
  c10::ScalarType was_dtype_ = c10::ScalarType::Float;
};

// The type that this thread's AutocastScope computes products of x in; x's own without a scope.
at::ScalarType OperandType(const at::Tensor& x);

// x in its OperandType.
// An operand of several products is cast once, and one copy is kept for their backward passes.
at::Tensor AsOperand(const at::Tensor& x);

}  // namespace oxbow::model
