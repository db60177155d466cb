// SPDX-License-Identifier: Apache-2.0
#include "services/learner/checkpoint/checkpoint_tensors.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"
#include "io/weight_files.h"
#include "rpc/convert.h"

namespace oxbow::learner {
namespace {

constexpr int64_t kWrittenAtOnce = int64_t{1} << 20;  // Elements.

std::string_view BytesOf(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// Elements [begin, begin + length) of `values`, whose memory is given back on the way.
absl::Status WriteAndRelease(parallel::HostCopy& values, int64_t begin, int64_t length,
                             const WritePiece& write) {
  std::vector<float> held(static_cast<size_t>(std::min(length, kWrittenAtOnce)));
  for (const int64_t end = begin + length; begin < end;) {
    const std::span<float> part(held.data(),
                                static_cast<size_t>(std::min(kWrittenAtOnce, end - begin)));
    values.Read(begin, part);
    begin += static_cast<int64_t>(part.size());
    values.Release(begin);
    OXBOW_RETURN_IF_ERROR(write({reinterpret_cast<const char*>(part.data()), part.size_bytes()}));
  }
  return absl::OkStatus();
}

}  // namespace

FlatCopy CopyOf(const model::ParameterSet& parameters) {
  return {.values = parallel::HostCopy(parameters.flat()),
          .shapes = ShapesOf(parameters.tensors())};
}

FileContent ContentOf(FlatCopy& copy) {
  return [&copy](const WritePiece& write) -> absl::Status {
    std::map<std::string, io::TensorHeader> headers;
    std::map<std::string, int64_t> begins;
    int64_t begin = 0;
    for (const auto& [name, shape] : copy.shapes) {
      headers[name] = {.dtype = io::DType::kF32, .shape = shape};
      begins[name] = std::exchange(begin, begin + c10::multiply_integers(shape));
    }
    return io::StreamSafetensors(
        headers, /*metadata=*/{},
        [&](const std::string& name, const WritePiece& write_bytes) {
          const int64_t length = c10::multiply_integers(copy.shapes.at(name));
          return WriteAndRelease(copy.values, begins.at(name), length, write_bytes);
        },
        write);
  };
}

FileContent ContentOf(TensorCopies& copies) {
  return [&copies](const WritePiece& write) -> absl::Status {
    std::map<std::string, io::TensorHeader> headers;
    for (const auto& [name, tensor] : copies.small) headers[name] = io::HeaderOf(tensor);
    for (const auto& [name, flat] : copies.flat) {
      headers[name] = {.dtype = io::DType::kF32, .shape = {flat.length()}};
    }
    return io::StreamSafetensors(
        headers, /*metadata=*/{},
        [&](const std::string& name, const WritePiece& write_bytes) {
          const auto found = copies.flat.find(name);
          if (found == copies.flat.end()) return write_bytes(BytesOf(copies.small.at(name)));
          return WriteAndRelease(found->second, 0, found->second.length(), write_bytes);
        },
        write);
  };
}

FileContent ContentOf(weights::Snapshot& cut) {
  return [&cut](const WritePiece& write) -> absl::Status {
    std::map<std::string, io::TensorHeader> headers;
    std::map<std::string, const v1::TensorManifest*> entries;
    std::map<std::string, int> uses;  // Equal pieces of tensors are one chunk.
    for (const v1::TensorManifest& tensor : cut.manifest.tensors()) {
      OXBOW_ASSIGN_OR_RETURN(const io::DType dtype, rpc::DTypeFromProto(tensor.dtype()));
      headers[tensor.name()] = {.dtype = dtype,
                                .shape = {tensor.shape().begin(), tensor.shape().end()}};
      entries[tensor.name()] = &tensor;
      for (const std::string& hash : tensor.chunk_sha256()) ++uses[hash];
    }
    return io::StreamSafetensors(
        headers, /*metadata=*/{},
        [&](const std::string& name, const WritePiece& write_bytes) -> absl::Status {
          for (const std::string& hash : entries.at(name)->chunk_sha256()) {
            OXBOW_RETURN_IF_ERROR(write_bytes(*cut.chunks.at(hash)));
            if (--uses.at(hash) == 0) cut.chunks.erase(hash);
          }
          return absl::OkStatus();
        },
        write);
  };
}

absl::StatusOr<model::NamedTensors> TensorsOf(const Checkpoint& checkpoint,
                                              const std::string& file) {
  if (!checkpoint.files.contains(file)) {
    return absl::DataLossError(absl::StrCat("checkpoint lacks a file: ", file));
  }
  OXBOW_ASSIGN_OR_RETURN(const io::WeightFiles mapped,
                         io::WeightFiles::OpenFile(checkpoint.directory / file));
  model::NamedTensors tensors;
  for (const auto& [name, header] : mapped.headers()) {
    tensors[name] = io::CopyOf(header.dtype, header.shape, mapped.BytesOf(name));
    mapped.Release(name);
  }
  return tensors;
}

absl::StatusOr<model::NamedTensors> OwedWeightsOf(const Checkpoint& checkpoint,
                                                  uint64_t committed) {
  const std::vector<uint64_t>& owed = checkpoint.state.owed_evaluations;
  if (owed.empty() || committed != owed.front()) {
    return absl::DataLossError(absl::StrCat("the checkpoint has no weights of step ", committed));
  }
  return TensorsOf(checkpoint, kOwedWeights);
}

}  // namespace oxbow::learner
