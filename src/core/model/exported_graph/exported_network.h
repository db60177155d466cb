// SPDX-License-Identifier: Apache-2.0
// A network that is no velocity, such as a reward's: an exported graph of named inputs and outputs
// with its weights. It runs forward alone.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/exported_graph/interpreter.h"
#include "core/model/named_tensors.h"

namespace oxbow::model::exported {

// Whether a graph's file is of this class and config, and of a transformer where `velocity` says
// so. An empty config is that of all defaults. kInvalidArgument says what is wrong.
absl::StatusOr<Graph> ParseNetwork(const std::string& graph_json, const std::string& class_name,
                                   const std::string& config_json, bool velocity = false);

struct NetworkOptions {
  at::Device device = at::kCPU;
  // The type of products (AutocastScope). Weights of linear layers are kept in it.
  at::ScalarType compute = at::kFloat;
};

class ExportedNetwork {
 public:
  // `weights`: of a checkpoint in float32, under the graph's names; those that the graph does not
  // name are left out. kInvalidArgument for a graph that does not compile, and for weights that are
  // missing or of other shapes.
  static absl::StatusOr<std::unique_ptr<ExportedNetwork>> Make(Graph graph, NamedTensors weights,
                                                               const NetworkOptions& options);

  // The outputs by name, float32 on the CPU, of all the graph's inputs. A row depends on the same
  // row of the inputs alone, up to rounding. kInvalidArgument for inputs that are not the graph's;
  // kInternal if an operator fails, naming the node. Thread-safe.
  absl::StatusOr<NamedTensors> Run(const NamedTensors& inputs) const;

  // Dimension `d` of an input, 0 where it is free. Dies if the graph has none of that name.
  int64_t SizeOf(const std::string& input, size_t d) const;

  // Every key of the class with its value, as JSON.
  const std::string& config_json() const { return program_->graph.config_json; }

 private:
  ExportedNetwork(std::shared_ptr<const Program> program, const NamedTensors& weights,
                  const NetworkOptions& options);

  const std::shared_ptr<const Program> program_;
  const at::Device device_;
  const Interpreter interpreter_;
};

}  // namespace oxbow::model::exported
