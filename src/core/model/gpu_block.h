// SPDX-License-Identifier: Apache-2.0
// A piece of a GPU's memory that several processes of a machine have in common, by CUDA IPC.
//
// It does not come from torch's allocator, whose blocks have neighbours. CUDA leaves open what
// becomes of a block that was opened elsewhere when the process that took it frees it or ends.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace oxbow::model {

// Names a GPU of this machine, for whichever process: its address on the PCI bus, which the
// instances of one GPU (MIG) have in common. kUnimplemented without CUDA.
absl::StatusOr<std::string> GpuId(at::Device gpu);

class GpuBlock : public std::enable_shared_from_this<GpuBlock> {
 public:
  // kUnimplemented without CUDA; kResourceExhausted if the GPU is full.
  static absl::StatusOr<std::shared_ptr<GpuBlock>> Take(at::Device gpu, uint64_t bytes);
  // Another process's. kUnavailable with CUDA's error where it cannot be opened, as from a
  // container with an IPC namespace of its own, or when its process has ended.
  static absl::StatusOr<std::shared_ptr<GpuBlock>> Open(at::Device gpu, const std::string& handle);
  ~GpuBlock();
  GpuBlock(const GpuBlock&) = delete;
  GpuBlock& operator=(const GpuBlock&) = delete;

  // For Open in another process, once all that was written is there. The block stays taken then
  // until this process ends: others may read it. kUnavailable where CUDA lends nothing.
  absl::StatusOr<std::string> Lend();

  // Its first `count` bytes, of type kByte; they keep the block.
  at::Tensor Bytes(uint64_t count);

 private:
  GpuBlock(at::Device gpu, void* data, bool is_own) : gpu_(gpu), data_(data), is_own_(is_own) {}

  const at::Device gpu_;
  void* const data_;
  const bool is_own_;
  bool lent_ = false;
};

}  // namespace oxbow::model
