// SPDX-License-Identifier: Apache-2.0
#include "core/model/recompute.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <type_traits>
#include <utility>

#include "base/check.h"
#include "core/model/host_inputs.h"

namespace oxbow::model {
namespace {

// A segment in the graph: of its inputs and leaves it keeps references alone, or what another
// segment made in host memory.
struct RecomputeNode final : torch::autograd::Node {
  RecomputeNode(Segment segment, const Tensors& inputs, const SegmentWeights& weights)
      : segment(std::move(segment)), hold(weights.hold), input_count(inputs.size()) {
    Tensors leaving;
    for (const Tensors* tensors : {&inputs, &weights.leaves}) {
      for (const at::Tensor& tensor : *tensors) {
        const bool leaves = tensors == &inputs && HostInputs::Current() != nullptr &&
                            tensor.defined() &&
                            dynamic_cast<RecomputeNode*>(tensor.grad_fn().get()) != nullptr;
        on_host.push_back(leaves);
        if (leaves) leaving.push_back(tensor);
        leaves ? saved.emplace_back() : saved.emplace_back(tensor, /*is_output=*/false);
      }
    }
    if (!leaving.empty()) kept = HostInputs::Current()->Keep(std::move(leaving));
  }

  Tensors apply(Tensors&& gradients) override {
    OXBOW_CHECK(!saved.empty()) << "a graph's backward pass ran twice";
    const at::AutoGradMode with_gradients(true);
    const auto held = hold ? hold() : nullptr;
    Tensors inputs;
    Tensors sources(saved.size());  // Tensors whose gradients are wanted; others stay undefined.
    const Tensors back = kept != nullptr ? kept->Take() : Tensors();
    size_t next_back = 0;
    for (size_t i = 0; i < saved.size(); ++i) {
      at::Tensor tensor = on_host[i] ? back[next_back++] : saved[i].unpack();
      if (i < input_count) {
        tensor = tensor.detach().requires_grad_(task_should_compute_output(i));
        inputs.push_back(tensor);
      }
      if (task_should_compute_output(i)) sources[i] = tensor;
    }
    return GradientsOf(segment(inputs), gradients, sources);
  }

  void release_variables() override {
    saved.clear();
    kept.reset();
  }

  // Gradients of the defined sources, in their places. A source that no output uses has none.
  static Tensors GradientsOf(const Tensors& outputs, const Tensors& gradients,
                             const Tensors& sources) {
    Tensors roots, root_gradients, wanted;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i]);
      root_gradients.push_back(gradients[i]);
    }
    for (const at::Tensor& source : sources) {
      if (source.defined()) wanted.push_back(source);
    }
    Tensors result(sources.size());
    if (roots.empty() || wanted.empty()) return result;
    const Tensors found =
        torch::autograd::grad(roots, wanted, root_gradients, /*retain_graph=*/false,
                              /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0, next = 0; i < sources.size(); ++i) {
      if (sources[i].defined()) result[i] = found[next++];
    }
    return result;
  }

  const Segment segment;
  const std::function<std::shared_ptr<const void>()> hold;
  const size_t input_count;
  std::vector<torch::autograd::SavedVariable> saved;  // Inputs, then leaves.
  std::vector<bool> on_host;                          // As many; those are in `kept`.
  std::shared_ptr<HostInputs::Kept> kept;
};

// The owner of a graph's nodes: std::shared_ptr up to LibTorch 2.11, their own count since.
using NodePointer = std::decay_t<decltype(std::declval<const at::Tensor&>().grad_fn())>;

// A template, or both ways would have to compile.
template <typename Pointer, typename Made>
Pointer Make(const Segment& segment, const Tensors& inputs, const SegmentWeights& weights) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>) {
    return std::make_shared<Made>(segment, inputs, weights);
  } else {
    return c10::make_intrusive<Made>(segment, inputs, weights);
  }
}

bool AnyRequiresGrad(const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.requires_grad()) return true;
  }
  return false;
}

}  // namespace

Tensors Recomputed(const Segment& segment, const Tensors& inputs, const SegmentWeights& weights) {
  const auto held = weights.hold ? weights.hold() : nullptr;
  const Tensors& leaves = weights.leaves;
  if (!at::GradMode::is_enabled() || !(AnyRequiresGrad(inputs) || AnyRequiresGrad(leaves))) {
    return segment(inputs);
  }
  const NodePointer node = Make<NodePointer, RecomputeNode>(segment, inputs, weights);
  Tensors all = inputs;
  all.insert(all.end(), leaves.begin(), leaves.end());
  node->set_next_edges(torch::autograd::collect_next_edges(all));
  Tensors outputs;
  {
    const at::NoGradGuard without_graph;
    outputs = segment(inputs);
  }
  torch::autograd::set_history(outputs, node);
  return outputs;
}

}  // namespace oxbow::model
