// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/exported_network.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "core/model/binding.h"
#include "core/model/exported_graph/exported_transformer.h"
#include "core/model/exported_graph/graph_config.h"
#include "core/model/exported_graph/packed_convolution.h"
#include "core/model/exported_graph/settled_nodes.h"
#include "core/model/packed_weights.h"

namespace oxbow::model::exported {
namespace {

const GraphInput* InputNamed(const Graph& graph, const std::string& name) {
  const auto found = std::find_if(graph.inputs.begin(), graph.inputs.end(),
                                  [&](const GraphInput& input) { return input.name == name; });
  return found == graph.inputs.end() ? nullptr : &*found;
}

// The graph's own weights where they compute, and in the layout of products.
NamedTensors Placed(const Graph& graph, NamedTensors weights, const NetworkOptions& options) {
  NamedTensors placed;
  for (const GraphParameter& parameter : graph.parameters) {
    const at::Tensor& weight = weights.at(parameter.name);
    const bool product = parameter.linear && !parameter.float32;
    const at::ScalarType type = product ? options.compute : weight.scalar_type();
    const at::Tensor there = weight.to(options.device, type);
    placed[parameter.name] = product ? Packed(there) : there;
    weights.erase(parameter.name);
  }
  return placed;
}

absl::StatusOr<std::vector<at::Tensor>> InOrder(const Graph& graph, const NamedTensors& inputs,
                                                at::Device device) {
  for (const auto& [name, tensor] : inputs) {
    if (InputNamed(graph, name) == nullptr) {
      return absl::InvalidArgumentError("no such input: " + name);
    }
  }
  std::vector<at::Tensor> ordered;
  for (const GraphInput& input : graph.inputs) {
    const auto found = inputs.find(input.name);
    if (found == inputs.end()) return absl::InvalidArgumentError("missing input: " + input.name);
    if (found->second.scalar_type() != input.type) {
      return absl::InvalidArgumentError(absl::StrCat("input ", input.name, ": ",
                                                     c10::toString(found->second.scalar_type()),
                                                     " instead of ", c10::toString(input.type)));
    }
    ordered.push_back(found->second.to(device));
  }
  OXBOW_RETURN_IF_ERROR(CheckInputs(graph, ordered));
  return ordered;
}

}  // namespace

absl::StatusOr<Graph> ParseNetwork(const std::string& graph_json, const std::string& class_name,
                                   const std::string& config_json, bool velocity) {
  OXBOW_ASSIGN_OR_RETURN(Graph graph, ParseGraph(graph_json));
  if (graph.velocity != velocity) {
    return absl::InvalidArgumentError(velocity ? "latent: missing: not a transformer's graph"
                                               : "latent: a transformer's graph");
  }
  if (graph.class_name != class_name) {
    return absl::InvalidArgumentError(
        absl::StrCat("class: ", graph.class_name, " instead of ", class_name));
  }
  OXBOW_RETURN_IF_ERROR(CheckConfig(graph, config_json.empty() ? "{}" : config_json));
  return graph;
}

ExportedNetwork::ExportedNetwork(std::shared_ptr<const Program> program,
                                 const NamedTensors& weights, const NetworkOptions& options)
    : program_(std::move(program)),
      device_(options.device),
      interpreter_(program_, weights, PlainLinears(program_->graph, weights), device_,
                   {.compute = options.compute}) {}

absl::StatusOr<std::unique_ptr<ExportedNetwork>> ExportedNetwork::Make(
    Graph graph, NamedTensors weights, const NetworkOptions& options) {
  const Shapes expected = ShapesOf(graph);
  std::erase_if(weights, [&](const auto& weight) { return !expected.contains(weight.first); });
  OXBOW_RETURN_IF_ERROR(CheckFit(expected, weights));
  OXBOW_ASSIGN_OR_RETURN(Graph settled, SettleNodes(std::move(graph), weights));
  if (options.device.is_cpu() && options.compute == at::kFloat) PackPixelLayers(settled, weights);
  OXBOW_ASSIGN_OR_RETURN(std::shared_ptr<const Program> program,
                         Compile(OverwriteDeadInputs(std::move(settled))));
  const NamedTensors placed = Placed(program->graph, std::move(weights), options);
  return std::unique_ptr<ExportedNetwork>(new ExportedNetwork(std::move(program), placed, options));
}

absl::StatusOr<NamedTensors> ExportedNetwork::Run(const NamedTensors& inputs) const {
  const Graph& graph = program_->graph;
  OXBOW_ASSIGN_OR_RETURN(const std::vector<at::Tensor> ordered, InOrder(graph, inputs, device_));
  const at::NoGradGuard no_gradients;
  NamedTensors named;
  try {
    const std::vector<at::Tensor> outputs = interpreter_.Run(ordered);
    for (size_t i = 0; i < outputs.size(); ++i) {
      named[graph.outputs[i].name] = outputs[i].to(at::kCPU, at::kFloat).contiguous();
    }
  } catch (const c10::Error& error) {
    // Its last line is the node.
    const std::string what = error.what_without_backtrace();
    return absl::InternalError(
        absl::StrCat(graph.class_name, ": ", what.substr(0, what.find('\n'))));
  }
  return named;
}

int64_t ExportedNetwork::SizeOf(const std::string& input, size_t d) const {
  const GraphInput* found = InputNamed(program_->graph, input);
  OXBOW_CHECK(found != nullptr && d < found->shape.size()) << "no input " << input << ", " << d;
  return found->shape[d].size;
}

}  // namespace oxbow::model::exported
