// SPDX-License-Identifier: Apache-2.0
#include "services/learner/weights_source.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <span>

#include "absl/strings/str_cat.h"
#include "io/tensor_torch.h"

namespace oxbow::learner {

TensorShapes ShapesOf(const model::NamedTensors& tensors) {
  TensorShapes shapes;
  for (const auto& [name, tensor] : tensors) shapes[name] = tensor.sizes().vec();
  return shapes;
}

weights::TensorSource FrozenSource(const model::NamedTensors& policy,
                                   const model::NamedTensors& decoder) {
  return [&policy, &decoder](const weights::UseTensor& use) {
    for (const auto& [name, tensor] : policy) use(name, io::FromTorch(tensor));
    for (const auto& [name, tensor] : decoder) {
      use(absl::StrCat(weights::kDecoderPrefix, name), io::FromTorch(tensor));
    }
  };
}

weights::TensorSource TrainedSource(parallel::HostCopy& trained, const TensorShapes& shapes) {
  return [&trained, &shapes](const weights::UseTensor& use) {
    int64_t begin = 0;
    for (const auto& [name, shape] : shapes) {
      const int64_t length = c10::multiply_integers(shape);
      io::TensorBytes bytes{.dtype = io::DType::kF32, .shape = shape, .data = {}};
      bytes.data.resize(static_cast<size_t>(length) * sizeof(float));
      trained.Read(begin, std::span<float>(reinterpret_cast<float*>(bytes.data.data()),
                                           static_cast<size_t>(length)));
      begin += length;
      trained.Release(begin);
      use(name, bytes);
    }
  };
}

}  // namespace oxbow::learner
