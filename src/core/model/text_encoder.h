// SPDX-License-Identifier: Apache-2.0
// A text encoder from an exported graph (docs/formats/exported_graphs.md): ids of tokens, and where
// the graph takes one a mask, to hidden states by name.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <memory>

#include "absl/status/statusor.h"
#include "core/model/exported_graph/exported_network.h"
#include "core/model/named_tensors.h"

namespace oxbow::model {

// B texts as a text encoder takes them.
struct TokenIds {
  at::Tensor ids;   // [B, S] int64
  at::Tensor mask;  // [B, S]: true where tokens attend to one. Undefined: to all, padding included.
};

class TextEncoder {
 public:
  // A graph with the inputs `ids` [B, S] int64 and perhaps `mask` [B, S] float32, and the weights
  // that it names, of any type. Tables and products take `options.compute`; vectors stay float32,
  // and so does, in float16, what the graph says (T5's last products leave that type).
  // kInvalidArgument for other inputs; else as ExportedNetwork::Make.
  static absl::StatusOr<std::unique_ptr<TextEncoder>> Make(exported::Graph graph,
                                                           NamedTensors weights,
                                                           const exported::NetworkOptions& options);

  // The graph's outputs on the CPU: float32, with the values that the type of products has.
  // Requires a true value in each row of a mask, and none where the graph takes none. On a CPU a
  // row has the same bits whatever the others are, up to widths that fill no vector register.
  // Errors as ExportedNetwork::Run.
  absl::StatusOr<NamedTensors> Encode(const TokenIds& texts) const;

 private:
  TextEncoder(std::unique_ptr<exported::ExportedNetwork> network, at::ScalarType compute,
              bool masked, bool pads_rows)
      : network_(std::move(network)), compute_(compute), masked_(masked), pads_rows_(pads_rows) {}

  const std::unique_ptr<exported::ExportedNetwork> network_;
  const at::ScalarType compute_;
  const bool masked_;     // Whether the graph takes a mask.
  const bool pads_rows_;  // Whether few texts take paths of their own through its products.
};

}  // namespace oxbow::model
