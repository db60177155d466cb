// SPDX-License-Identifier: Apache-2.0
#include "services/learner/checkpoint_tensors.h"

#include <ATen/ATen.h>

#include <map>
#include <string_view>
#include <utility>

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

model::NamedTensors AllOnHost(const model::NamedTensors& tensors) {
  model::NamedTensors copies;
  for (const auto& [name, tensor] : tensors) copies[name] = OnHost(tensor);
  return copies;
}

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
