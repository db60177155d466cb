// SPDX-License-Identifier: Apache-2.0
// The frozen weights of a LoRA, in a GPU's memory once for all processes that compute there.
//
// A learner rank reads them into one block (gpu_block.h) and says in a table (lent_table.h) what is
// where. A worker on the same GPU opens the block and binds its network to it, tensor by tensor,
// after it has compared the bits with those that it would have kept itself. Nobody writes to frozen
// weights, so sharing changes no bit. Where it cannot be, each keeps its own.
//
// The lender must outlive those who borrow: who borrows ends when the lender has ended
// (services/rollout/lender_watch.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/architecture.h"
#include "core/model/gpu_block.h"
#include "core/model/lent_table.h"
#include "core/model/policy.h"

namespace oxbow::model {

// A lender's side.
class LentBase {
 public:
  // Room on the GPU for the whole base of a LoRA that multiplies in `compute`. Removes the table
  // that an earlier process has left in `directory`, which is made if it is missing. Errors as
  // GpuBlock::Take.
  static absl::StatusOr<LentBase> Make(const Architecture& architecture, at::ScalarType compute,
                                       at::Device gpu, const std::filesystem::path& directory);

  // Reads into that room: a policy keeps what it gets there. It may be called beyond this's life.
  ReadTensor Filling(ReadTensor read) const;

  // Once all was read: from now on others may borrow. Errors as GpuBlock::Lend, and of the file.
  absl::Status Publish();

 private:
  LentBase(LentTable table, std::shared_ptr<GpuBlock> block, std::filesystem::path path);

  LentTable table_;
  std::shared_ptr<GpuBlock> block_;
  std::filesystem::path path_;
};

// A borrower's side.
class BorrowedBase : public std::enable_shared_from_this<BorrowedBase> {
 public:
  // kNotFound where nobody lends a base on this GPU; else errors as ParseLent and GpuBlock::Open.
  static absl::StatusOr<std::shared_ptr<BorrowedBase>> Open(const std::filesystem::path& directory,
                                                            at::Device gpu);

  // Asks `read`, and gives the lent tensor in its place where it has the same type, shape and bits.
  ReadTensor InPlaceOf(ReadTensor read);

  pid_t lender() const { return table_.lender; }
  uint64_t borrowed() const { return borrowed_; }  // Bytes that were given in place of others,
  uint64_t own() const { return own_; }            // and of those that were not.

 private:
  BorrowedBase(LentTable table, std::shared_ptr<GpuBlock> block, at::Device gpu)
      : table_(std::move(table)), block_(std::move(block)), gpu_(gpu) {}

  const LentTable table_;
  const std::shared_ptr<GpuBlock> block_;
  const at::Device gpu_;
  uint64_t borrowed_ = 0, own_ = 0;
};

}  // namespace oxbow::model
