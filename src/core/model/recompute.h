// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing (arXiv:1604.06174): a piece of a network whose intermediate results are
// not kept for the backward pass but computed again from its inputs. Memory of one piece instead
// of all, for one more forward.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace oxbow::model {

using Tensors = std::vector<at::Tensor>;
using Segment = std::function<Tensors(const Tensors&)>;

// segment(inputs), with the same bits. `leaves` are the trainable tensors that the segment reads
// besides its inputs: their gradients flow as if it had been called directly. The segment must be
// pure, return none of its inputs, and live until the backward pass is over. Without gradients it
// is a plain call.
Tensors Recomputed(const Segment& segment, const Tensors& inputs, const Tensors& leaves);

}  // namespace oxbow::model
