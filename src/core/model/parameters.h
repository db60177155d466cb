// SPDX-License-Identifier: Apache-2.0
// Named tensors of a model, in one flat piece of memory.
//
// One flat float32 tensor per set makes the optimiser, EMA, gradient all-reduce, hashing and
// checkpoints single operations. Models bind views of it by their published names.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "core/model/named_tensors.h"

namespace oxbow::model {

class OffloadedWeights;

Shapes ShapesOf(const NamedTensors& tensors);

class ParameterSet {
 public:
  // Copies `tensors` into one flat float32 tensor on `device`, in name order. With `trainable`,
  // every view is an autograd leaf.
  ParameterSet(const NamedTensors& tensors, bool trainable, at::Device device = at::kCPU);

  // Without values, which tensors() are then given.
  ParameterSet(const Shapes& shapes, bool trainable, at::Device device = at::kCPU);

  // So, too, but the flat tensor is in host memory. The leaves are on the device of `offloaded`,
  // which outlives this, and have values while that lets them.
  ParameterSet(const Shapes& shapes, bool trainable, OffloadedWeights& offloaded);

  // Writes all tensors(). The same names and shapes are required.
  void CopyFrom(const NamedTensors& tensors);

  const at::Tensor& Get(const std::string& name) const;  // Dies if absent.
  bool Has(const std::string& name) const;
  const NamedTensors& tensors() const { return views_; }
  int64_t numel() const;

  // Tensors that networks compute with and gradients are of: the set's own, unless offloaded.
  const NamedTensors& leaves() const { return leaves_; }
  at::Device device() const { return device_; }  // Where those and gradients are.

  // To be written to by torch alone, or its version counter does not tell (offloaded_weights.h).
  at::Tensor& flat() { return flat_; }
  const at::Tensor& flat() const { return flat_; }

  // The gradient [N] on device(), made at the first call. From then on every leaf's .grad is a view
  // of it, so backward() accumulates in place. Dies unless trainable.
  at::Tensor& flat_grad();
  void ZeroGrad();  // Sets flat_grad() to 0.

  // Offloaded: host memory for the next weights [N], and the exchange of the two, which copies
  // nothing. Whoever fails before the exchange has changed nothing.
  at::Tensor& next();
  void ExchangeWithNext();
  bool offloaded() const { return offloaded_; }

  void CopyFrom(const ParameterSet& other);  // Same names and shapes required.

 private:
  ParameterSet(const Shapes& shapes, at::TensorOptions flat, at::Device device);

  at::Tensor flat_;
  at::Tensor flat_grad_, next_;  // Undefined before they are asked for.
  NamedTensors views_, leaves_;
  at::Device device_;
  bool offloaded_ = false;
};

}  // namespace oxbow::model
