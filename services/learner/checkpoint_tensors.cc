// SPDX-License-Identifier: Apache-2.0
#include "services/learner/checkpoint_tensors.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

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

namespace oxbow::learner {
namespace {

at::Tensor OnHost(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
  return host.is_alias_of(tensor) ? host.clone() : host;
}

std::string_view BytesOf(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace

model::NamedTensors TakenToHost(model::NamedTensors tensors) {
  model::NamedTensors taken;
  while (!tensors.empty()) {
    const auto node = tensors.extract(tensors.begin());
    const at::Tensor& tensor = node.mapped();
    // No other handle and no view of it.
    const bool ours = tensor.is_cpu() && tensor.is_contiguous() && tensor.use_count() == 1 &&
                      tensor.storage().use_count() == 1;
    taken[node.key()] = ours ? tensor : OnHost(tensor);
  }
  return taken;
}

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
    std::vector<float> held;  // One tensor.
    const auto bytes_of = [&](const std::string& name) -> absl::StatusOr<std::string_view> {
      held.resize(static_cast<size_t>(c10::multiply_integers(copy.shapes.at(name))));
      copy.values.Read(begins.at(name), std::span<float>(held));
      copy.values.Release(begins.at(name) + static_cast<int64_t>(held.size()));
      return std::string_view(reinterpret_cast<const char*>(held.data()),
                              held.size() * sizeof(float));
    };
    return io::StreamSafetensors(headers, /*metadata=*/{}, bytes_of, write);
  };
}

FileContent ContentOf(model::NamedTensors& tensors) {
  return [&tensors](const WritePiece& write) -> absl::Status {
    std::map<std::string, io::TensorHeader> headers;
    for (const auto& [name, tensor] : tensors) headers[name] = io::HeaderOf(tensor);
    const absl::Status status = io::StreamSafetensors(
        headers, /*metadata=*/{},
        [&](const std::string& name) -> absl::StatusOr<std::string_view> {
          return BytesOf(tensors.at(name));
        },
        write);
    tensors.clear();
    return status;
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

}  // namespace oxbow::learner
