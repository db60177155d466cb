// SPDX-License-Identifier: Apache-2.0
#include "core/model/device.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/model/cuda_graphs.h"
#include "core/model/fused/fused_layers.h"

namespace oxbow::model {

int GpuCount() {
  return at::hasCUDA() ? static_cast<int>(at::detail::getCUDAHooks().deviceCount()) : 0;
}

absl::StatusOr<at::Device> DeviceNamed(const std::string& name, int local_rank) {
  if (name == "cpu") return at::Device(at::kCPU);
  absl::string_view number = name;
  int index = local_rank;
  if (name != "cuda" &&
      !(absl::ConsumePrefix(&number, "cuda:") && absl::SimpleAtoi(number, &index) && index >= 0)) {
    return absl::InvalidArgumentError("a device is cpu, cuda or cuda:N: " + name);
  }
  // A LibTorch with CUDA says that it has none where it finds no GPU.
  if (!at::hasCUDA()) {
    return absl::InvalidArgumentError(absl::StrCat(
        HasCudaGraphs()
            ? "no GPU of this machine can be used (nvidia-smi lists those that its driver "
              "sees); choose cpu: "
            : "this build has no CUDA: build the preset cuda, or choose cpu: ",
        name));
  }
  const int count = GpuCount();
  if (index >= count) {
    return absl::InvalidArgumentError(
        absl::StrCat("no such device here, of ", count, " GPUs: ", name));
  }
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index));
}

std::string MissingKernelsText(at::Device device) {
  if (device.is_cpu() || fused::HasKernels()) return "";
  return "this build has no fused kernels, and passes on a GPU take up to half as long again: "
         "tools/install_deps.sh --cuda brings nvcc, then build it again";
}

void UseDeterministicAlgorithms(at::Device device, bool on) {
  if (device.is_cpu()) return;
  if (on) ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // Else products throw.
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(on, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);  // Nothing reads such memory.
}

AutocastScope::AutocastScope(c10::DeviceType device, c10::ScalarType dtype)
    : device_(device), active_(dtype != c10::ScalarType::Float) {
  if (!active_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device);
  was_dtype_ = at::autocast::get_autocast_dtype(device);
  at::autocast::set_autocast_enabled(device, true);
  at::autocast::set_autocast_dtype(device, dtype);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  // Casts of weights are kept within the outermost scope; a later one may see other weights.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, was_dtype_);
}

at::ScalarType OperandType(const at::Tensor& x) {
  const c10::DeviceType device = x.device().type();
  return at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device)
                                                   : x.scalar_type();
}

at::Tensor AsOperand(const at::Tensor& x) { return x.to(OperandType(x)); }

}  // namespace oxbow::model
