// SPDX-License-Identifier: Apache-2.0
// Convolutions over pictures as they are fastest on a CPU. Results differ from those of the plain
// operator by rounding.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <optional>
#include <vector>

#include "core/model/exported_graph/graph.h"
#include "core/model/named_tensors.h"

namespace oxbow::model::exported {

// A convolution of one pixel is a linear layer over pixels. Packs the weights of those
// (packed_weights.h), constants of the graph and weights by name, that nothing else reads; a plain
// one dies before the next is packed. Requires a network that runs forward alone, in float32.
void PackPixelLayers(Graph& graph, NamedTensors& weights);

// A call of aten::conv2d with a packed weight; or with a large kernel, which is a product over a
// copy of the picture's windows: for that the picture is laid row by row, where a linear layer over
// pixels left its channels together.
class PackedConvolution {
 public:
  // From the operator's arguments, without the picture. Nullopt where the operator does as well.
  static std::optional<PackedConvolution> Of(const torch::jit::Stack& arguments);

  // [B, C, h, w] -> [B, C', h', w']
  at::Tensor operator()(const at::Tensor& picture) const;

 private:
  PackedConvolution() = default;

  at::Tensor weight_;  // [C', C], packed; of a large kernel plain.
  at::Tensor bias_;    // Or undefined.
  bool large_ = false;
  std::vector<int64_t> stride_, padding_, dilation_;
};

}  // namespace oxbow::model::exported
