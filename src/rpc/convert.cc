// SPDX-License-Identifier: Apache-2.0
#include "rpc/convert.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace oxbow::rpc {
namespace {

// Parts of a conditioning with fields of their own.
constexpr char kTokens[] = "tokens";
constexpr char kPooled[] = "pooled";

constexpr std::pair<io::DType, v1::DType> kDTypes[] = {
    {io::DType::kF32, v1::DTYPE_F32},   {io::DType::kF16, v1::DTYPE_F16},
    {io::DType::kBF16, v1::DTYPE_BF16}, {io::DType::kF64, v1::DTYPE_F64},
    {io::DType::kI64, v1::DTYPE_I64},   {io::DType::kI32, v1::DTYPE_I32},
    {io::DType::kU8, v1::DTYPE_U8},     {io::DType::kBool, v1::DTYPE_BOOL},
    {io::DType::kI8, v1::DTYPE_I8}};

std::vector<int64_t> ShapeOf(const v1::Tensor& tensor) {
  return {tensor.shape().begin(), tensor.shape().end()};
}

bool NeverSet(const v1::Tensor& tensor) {
  return tensor.dtype() == v1::DTYPE_UNSPECIFIED && tensor.shape().empty() && tensor.data().empty();
}

}  // namespace

v1::DType ToProto(io::DType dtype) {
  for (const auto& [ours, wire] : kDTypes) {
    if (ours == dtype) return wire;
  }
  OXBOW_CHECK(false) << "dtype " << static_cast<int>(dtype);
  return v1::DTYPE_UNSPECIFIED;
}

absl::StatusOr<io::DType> DTypeFromProto(v1::DType dtype) {
  for (const auto& [ours, wire] : kDTypes) {
    if (wire == dtype) return ours;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("tensor has no known dtype: ", static_cast<int>(dtype)));
}

v1::Tensor HeaderOf(const io::TensorBytes& tensor) {
  v1::Tensor header;
  header.set_dtype(ToProto(tensor.dtype));
  header.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  return header;
}

v1::Tensor ToProto(io::TensorBytes tensor) {
  v1::Tensor message = HeaderOf(tensor);
  message.set_data(std::move(tensor.data));
  return message;
}

absl::StatusOr<io::TensorBytes> TensorFromProto(const v1::Tensor& header, std::string data) {
  io::TensorBytes tensor;
  OXBOW_ASSIGN_OR_RETURN(tensor.dtype, DTypeFromProto(header.dtype()));
  tensor.shape = ShapeOf(header);
  tensor.data = std::move(data);
  OXBOW_RETURN_IF_ERROR(io::Validate(tensor));
  return tensor;
}

absl::StatusOr<io::TensorBytes> TensorFromProto(const v1::Tensor& tensor) {
  return TensorFromProto(tensor, tensor.data());
}

absl::StatusOr<uint64_t> DeclaredBytes(const v1::Tensor& header, uint64_t bytes_max) {
  if (NeverSet(header)) return 0;
  OXBOW_ASSIGN_OR_RETURN(const io::DType dtype, DTypeFromProto(header.dtype()));
  return io::ByteSize(dtype, ShapeOf(header), bytes_max);
}

std::vector<PartHeld> PartsOf(const v1::Conditioning& conditioning) {
  std::vector<PartHeld> parts;
  if (conditioning.has_tokens()) parts.push_back({kTokens, &conditioning.tokens()});
  if (conditioning.has_pooled()) parts.push_back({kPooled, &conditioning.pooled()});
  for (const v1::NamedTensor& part : conditioning.parts()) {
    parts.push_back({part.name(), &part.tensor()});
  }
  return parts;
}

void SetPart(v1::Conditioning& conditioning, const std::string& name, v1::Tensor tensor) {
  if (name == kTokens) {
    *conditioning.mutable_tokens() = std::move(tensor);
  } else if (name == kPooled) {
    *conditioning.mutable_pooled() = std::move(tensor);
  } else {
    v1::NamedTensor& part = *conditioning.add_parts();
    part.set_name(name);
    *part.mutable_tensor() = std::move(tensor);
  }
}

bool ForEachChunk(std::string_view bytes, uint64_t chunk_bytes,
                  const std::function<bool(uint64_t offset, std::string_view piece)>& send) {
  OXBOW_CHECK(chunk_bytes > 0) << "chunk size";
  for (uint64_t offset = 0; offset < bytes.size(); offset += chunk_bytes) {
    if (!send(offset, bytes.substr(offset, chunk_bytes))) return false;
  }
  return true;
}

absl::StatusOr<ChunkAssembler> ChunkAssembler::Start(const std::vector<v1::Tensor>& headers,
                                                     uint64_t bytes_max) {
  std::vector<uint64_t> sizes;
  sizes.reserve(headers.size());
  uint64_t total = 0;
  for (size_t i = 0; i < headers.size(); ++i) {
    absl::StatusOr<uint64_t> bytes = DeclaredBytes(headers[i], bytes_max);
    if (!bytes.ok()) return Annotate(bytes.status(), absl::StrCat("tensor ", i));
    if (*bytes > bytes_max - total) {
      return absl::ResourceExhaustedError(
          absl::StrCat("declared tensors exceed the limit: ", bytes_max, " bytes"));
    }
    total += *bytes;
    sizes.push_back(*bytes);
  }
  return ChunkAssembler(std::move(sizes));
}

ChunkAssembler::ChunkAssembler(std::vector<uint64_t> sizes)
    : sizes_(std::move(sizes)), data_(sizes_.size()) {
  for (const uint64_t size : sizes_) bytes_total_ += size;
  SkipFinished();
}

void ChunkAssembler::SkipFinished() {
  while (current_ < sizes_.size() && data_[current_].size() == sizes_[current_]) ++current_;
}

absl::Status ChunkAssembler::Add(uint32_t tensor, uint64_t offset, std::string_view piece) {
  if (complete()) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk after the last declared byte: tensor ", tensor, ", offset ", offset));
  }
  std::string& data = data_[current_];
  if (tensor != current_ || offset != data.size()) {
    return absl::InvalidArgumentError(absl::StrCat("chunk out of order: tensor ", tensor,
                                                   ", offset ", offset, "; expected tensor ",
                                                   current_, ", offset ", data.size()));
  }
  if (piece.empty() || piece.size() > sizes_[current_] - data.size()) {
    return absl::InvalidArgumentError(absl::StrCat("chunk does not fit: ", piece.size(), " bytes, ",
                                                   sizes_[current_] - data.size(),
                                                   " left in tensor ", tensor));
  }
  // Reserve only when the first piece arrives: a header alone costs its sender nothing, so it must
  // cost us nothing.
  if (data.empty()) data.reserve(sizes_[current_]);
  data.append(piece);
  SkipFinished();
  return absl::OkStatus();
}

std::vector<std::string> ChunkAssembler::Take() && {
  OXBOW_CHECK(complete()) << "tensors taken before they were complete";
  return std::move(data_);
}

const v1::Trajectory* BestFresh(const v1::Group& group) {
  const v1::Trajectory* best = nullptr;
  for (const v1::Trajectory& trajectory : group.trajectories()) {
    if (trajectory.replayed() || trajectory.reward_failed()) continue;
    const bool better =
        best == nullptr || trajectory.reward() > best->reward() ||
        (trajectory.reward() == best->reward() && trajectory.sample() < best->sample());
    if (better) best = &trajectory;
  }
  return best;
}

}  // namespace oxbow::rpc
