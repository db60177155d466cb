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

// The type to hold a weight in where products are taken in `type`: vectors, and in float16 what the
// graph says stays float32 (T5's last products leave float16), are float32.
at::ScalarType TextStorageType(const exported::GraphParameter& parameter, at::ScalarType type);

class TextEncoder {
 public:
  // A graph with the inputs `ids` [B, S] int64 and perhaps `mask` [B, S] float32, and the weights
  // that it names, of any type. kInvalidArgument for other inputs; else as ExportedNetwork::Make.
  static absl::StatusOr<std::unique_ptr<TextEncoder>> Make(exported::Graph graph,
                                                           NamedTensors weights,
                                                           const exported::NetworkOptions& options);

  // The graph's outputs, float32 on the CPU. ids [B, S] int64. mask [B, S]: 1 (or true) for tokens
  // that are attended to; undefined: all, padding included. On a CPU a row has the same bits
  // whatever the others are. Requires a 1 in each row of a mask. Errors as ExportedNetwork::Run.
  absl::StatusOr<NamedTensors> Encode(const at::Tensor& ids, const at::Tensor& mask = {}) const;

 private:
  TextEncoder(std::unique_ptr<exported::ExportedNetwork> network, bool masked, bool pooled)
      : network_(std::move(network)), masked_(masked), pooled_(pooled) {}

  const std::unique_ptr<exported::ExportedNetwork> network_;
  const bool masked_;  // Whether the graph takes a mask.
  const bool pooled_;  // Whether an output has one row per text.
};

}  // namespace oxbow::model
