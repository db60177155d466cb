// SPDX-License-Identifier: Apache-2.0
// A network that runs an exported graph.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "core/model/exported_graph/interpreter.h"
#include "core/model/exported_graph/program.h"
#include "core/model/lora.h"
#include "core/model/velocity_model.h"

namespace oxbow::model::exported {

// The input [B] that takes the scale of an embedded guidance: Execution's, unless the conditioning
// has one for each row.
inline constexpr char kEmbeddedGuidance[] = "guidance";

// Every tensor of a checkpoint, and what LoRA adapters can attach to: layers that the graph does
// not use as well, where an adapter changes nothing.
Shapes ShapesOf(const Graph& graph);
LinearModules LinearsOf(const Graph& graph);

// The linear layers of weights by module, without adapters.
std::map<std::string, Linear> PlainLinears(const Graph& graph, const NamedTensors& weights);

// On CPUs a batch is padded to a multiple of so many rows. Products of few columns take the rows in
// blocks of 8, and loops over elements take 32 at once: what is left over has other bits.
int64_t RowsOfBlock(const Graph& graph);

// As Architecture::Make. Forward is thread-compatible.
absl::StatusOr<std::unique_ptr<VelocityModel>> MakeExportedTransformer(
    std::shared_ptr<const Program> program, const NamedTensors& weights, const LoraAdapter* adapter,
    const Execution& execution);

// kInvalidArgument for an input whose size is outside its symbol's range, is no multiple of what it
// must be, or differs from another input's of the same symbol.
absl::Status CheckInputs(const Graph& graph, const std::vector<at::Tensor>& inputs);

}  // namespace oxbow::model::exported
