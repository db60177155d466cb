// SPDX-License-Identifier: Apache-2.0
#include "core/model/gpu_block.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>
#include <dlfcn.h>

#include <cstring>
#include <exception>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace oxbow::model {
namespace {

// cudaIpcMemHandle_t, which is passed by value.
struct IpcHandle {
  char bytes[64];
};

constexpr int kCudaOutOfMemory = 2;            // cudaErrorMemoryAllocation
constexpr unsigned kLazyEnablePeerAccess = 1;  // cudaIpcMemLazyEnablePeerAccess

// Calls a function of the CUDA runtime. kUnimplemented in a process that has none. An error is
// forgotten by CUDA, or torch would find it in its own next call.
template <typename... Parameters>
absl::Status CallCuda(const char* name, Parameters... parameters) {
  auto* const function = reinterpret_cast<int (*)(Parameters...)>(dlsym(RTLD_DEFAULT, name));
  if (function == nullptr) return absl::UnimplementedError(absl::StrCat("no CUDA here: ", name));
  const int error = function(parameters...);
  if (error == 0) return absl::OkStatus();
  if (auto* const forget = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "cudaGetLastError"))) {
    forget();
  }
  const std::string text = absl::StrCat(name, " answers with CUDA's error ", error);
  return error == kCudaOutOfMemory ? absl::ResourceExhaustedError(text)
                                   : absl::UnavailableError(text);
}

// A process may come here before torch has used a GPU.
void BeginCuda() { at::globalContext().lazyInitDevice(at::kCUDA); }

// Waits for what others of this process do with the GPU.
void Settle(at::Device gpu) { at::detail::getCUDAHooks().deviceSynchronize(gpu.index()); }

}  // namespace

absl::StatusOr<std::string> GpuId(at::Device gpu) {
  char id[64] = {};
  if (!gpu.is_cuda()) return absl::UnimplementedError("no GPU");
  OXBOW_RETURN_IF_ERROR(CallCuda("cudaDeviceGetPCIBusId", static_cast<char*>(id),
                                 static_cast<int>(sizeof id), static_cast<int>(gpu.index())));
  return std::string(id);
}

absl::StatusOr<std::shared_ptr<GpuBlock>> GpuBlock::Take(at::Device gpu, uint64_t bytes) {
  BeginCuda();
  const c10::DeviceGuard guard(gpu);
  void* data = nullptr;
  OXBOW_RETURN_IF_ERROR(CallCuda("cudaMalloc", &data, static_cast<size_t>(bytes)));
  return std::shared_ptr<GpuBlock>(new GpuBlock(gpu, data, /*is_own=*/true));
}

absl::StatusOr<std::shared_ptr<GpuBlock>> GpuBlock::Open(at::Device gpu,
                                                         const std::string& handle) {
  IpcHandle opened{};
  if (handle.size() != sizeof opened.bytes) return absl::DataLossError("no handle of CUDA");
  std::memcpy(opened.bytes, handle.data(), sizeof opened.bytes);
  BeginCuda();
  const c10::DeviceGuard guard(gpu);
  void* data = nullptr;
  OXBOW_RETURN_IF_ERROR(CallCuda("cudaIpcOpenMemHandle", &data, opened, kLazyEnablePeerAccess));
  return std::shared_ptr<GpuBlock>(new GpuBlock(gpu, data, /*is_own=*/false));
}

GpuBlock::~GpuBlock() {
  if (lent_) return;
  try {
    const c10::DeviceGuard guard(gpu_);
    Settle(gpu_);
    CallCuda(is_own_ ? "cudaFree" : "cudaIpcCloseMemHandle", data_).IgnoreError();
  } catch (const std::exception&) {  // The GPU is lost, and so is the block.
  }
}

absl::StatusOr<std::string> GpuBlock::Lend() {
  const c10::DeviceGuard guard(gpu_);
  Settle(gpu_);
  IpcHandle handle{};
  OXBOW_RETURN_IF_ERROR(CallCuda("cudaIpcGetMemHandle", &handle, data_));
  lent_ = true;
  return std::string(handle.bytes, sizeof handle.bytes);
}

at::Tensor GpuBlock::Bytes(uint64_t count) {
  return at::for_blob(data_, {static_cast<int64_t>(count)})
      .deleter([self = shared_from_this()](void*) {})
      .options(at::TensorOptions(gpu_).dtype(at::kByte))
      .target_device(gpu_)
      .make_tensor();
}

}  // namespace oxbow::model
