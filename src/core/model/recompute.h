// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing (arXiv:1604.06174): a piece of a network whose intermediate results are
// not kept for the backward pass but computed again from its inputs. Memory of one piece instead
// of all, for one more forward.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace oxbow::model {

using Tensors = std::vector<at::Tensor>;
using Segment = std::function<Tensors(const Tensors&)>;

// Weights that a segment reads besides its inputs.
struct SegmentWeights {
  Tensors leaves;  // Those that train.
  // Makes all of them ready for as long as the result lives (offloaded_weights.h). Null: they are.
  std::function<std::shared_ptr<const void>()> hold;
};

// segment(inputs), with the same bits; on a GPU the second pass may take other kernels, as it has
// gradients (fused/fused_layers.h). Gradients flow to its inputs and to the leaves of `weights`
// as if it had been called directly. The segment must be pure, return none of its inputs, and live
// until the backward pass is over. Without gradients it is a plain call. Weights are held while the
// segment computes, forward and again backward. In a HostInputs::Scope (host_inputs.h) inputs that
// another segment made wait in host memory.
Tensors Recomputed(const Segment& segment, const Tensors& inputs, const SegmentWeights& weights);

}  // namespace oxbow::model
