// SPDX-License-Identifier: Apache-2.0
#include "core/model/lent_base.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/process.h"
#include "base/status_macros.h"

namespace oxbow::model {
namespace {

constexpr uint64_t kLentTextMax = uint64_t{64} << 20;

std::filesystem::path LentPath(const std::filesystem::path& directory, std::string gpu) {
  std::replace(gpu.begin(), gpu.end(), ':', '-');
  return directory / absl::StrCat("lent_base-", MachineId(), "-", gpu);
}

// Every value's bits, so that NaN is equal to itself and 0 is not to -0.
bool HasBits(const at::Tensor& one, const at::Tensor& other) {
  const at::ScalarType bits = one.element_size() == 4 ? at::kInt : at::kShort;
  return at::equal(one.view(bits), other.view(bits));
}

at::Tensor InBlock(const at::Tensor& bytes, const LentTensor& place) {
  const auto count = static_cast<int64_t>(LentBytes(place).value());
  return bytes.narrow(0, static_cast<int64_t>(place.begin), count)
      .view(place.type)
      .view(place.shape);
}

}  // namespace

LentBase::LentBase(LentTable table, std::shared_ptr<GpuBlock> block, std::filesystem::path path)
    : table_(std::move(table)), block_(std::move(block)), path_(std::move(path)) {}

absl::StatusOr<LentBase> LentBase::Make(const Architecture& architecture, at::ScalarType compute,
                                        at::Device gpu, const std::filesystem::path& directory) {
  OXBOW_ASSIGN_OR_RETURN(std::string id, GpuId(gpu));
  OXBOW_RETURN_IF_ERROR(MakeDirectories(directory));
  std::filesystem::path path = LentPath(directory, id);
  std::error_code error;
  std::filesystem::remove(path, error);
  if (error) return ErrnoStatus("cannot remove", path.string(), error.value());
  const Shapes shapes = architecture.shapes();
  std::map<std::string, at::ScalarType> types;
  for (const auto& [name, shape] : shapes) types[name] = FrozenType(architecture, compute, name);
  OXBOW_ASSIGN_OR_RETURN(LentTable table,
                         PlacedTensors(shapes, types, architecture.side_by_side()));
  table.machine = MachineId();
  table.gpu = std::move(id);
  table.lender = ::getpid();
  OXBOW_ASSIGN_OR_RETURN(auto block, GpuBlock::Take(gpu, table.bytes));
  return LentBase(std::move(table), std::move(block), std::move(path));
}

ReadTensor LentBase::Filling(ReadTensor read) const {
  return [read = std::move(read), table = table_, bytes = block_->Bytes(table_.bytes)](
             const std::string& name) -> absl::StatusOr<at::Tensor> {
    OXBOW_ASSIGN_OR_RETURN(const at::Tensor tensor, read(name));
    const auto place = table.tensors.find(name);
    // The policy refuses a tensor that does not fit.
    if (place == table.tensors.end() || tensor.sizes() != at::IntArrayRef(place->second.shape)) {
      return tensor;
    }
    at::Tensor lent = InBlock(bytes, place->second);
    lent.copy_(tensor);
    return lent;
  };
}

absl::Status LentBase::Publish() {
  OXBOW_ASSIGN_OR_RETURN(table_.handle, block_->Lend());
  return WriteFileAtomically(path_, LentText(table_));
}

absl::StatusOr<std::shared_ptr<BorrowedBase>> BorrowedBase::Open(
    const std::filesystem::path& directory, at::Device gpu) {
  OXBOW_ASSIGN_OR_RETURN(const std::string id, GpuId(gpu));
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(LentPath(directory, id), kLentTextMax));
  OXBOW_ASSIGN_OR_RETURN(LentTable table, ParseLent(text));
  if (table.machine != MachineId() || table.gpu != id) {
    return absl::NotFoundError("the table is another GPU's");
  }
  OXBOW_ASSIGN_OR_RETURN(auto block, GpuBlock::Open(gpu, table.handle));
  return std::shared_ptr<BorrowedBase>(new BorrowedBase(std::move(table), std::move(block), gpu));
}

ReadTensor BorrowedBase::InPlaceOf(ReadTensor read) {
  return [read = std::move(read), self = shared_from_this(), bytes = block_->Bytes(table_.bytes)](
             const std::string& name) -> absl::StatusOr<at::Tensor> {
    OXBOW_ASSIGN_OR_RETURN(const at::Tensor tensor, read(name));
    const auto place = self->table_.tensors.find(name);
    if (place != self->table_.tensors.end() && tensor.scalar_type() == place->second.type &&
        tensor.sizes() == at::IntArrayRef(place->second.shape)) {
      at::Tensor lent = InBlock(bytes, place->second);
      if (HasBits(lent, tensor.to(self->gpu_).contiguous())) {
        self->borrowed_ += lent.nbytes();
        return lent;
      }
    }
    self->own_ += tensor.nbytes();
    return tensor;
  };
}

}  // namespace oxbow::model
