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

class ParameterSet {
 public:
  // Copies `tensors` into one flat float32 tensor on `device`, in name order. With `trainable`,
  // every view is an autograd leaf.
  ParameterSet(const NamedTensors& tensors, bool trainable, at::Device device = at::kCPU);

  const at::Tensor& Get(const std::string& name) const;  // Dies if absent.
  bool Has(const std::string& name) const;
  const NamedTensors& tensors() const { return views_; }
  int64_t numel() const;

  at::Tensor& flat() { return flat_; }
  const at::Tensor& flat() const { return flat_; }

  // The gradient [N], made at the first call. From then on every leaf's .grad is a view of it, so
  // backward() accumulates in place. Dies unless trainable.
  at::Tensor& flat_grad();
  void ZeroGrad();  // Sets flat_grad() to 0.

  void CopyFrom(const ParameterSet& other);  // Same names and shapes required.

 private:
  at::Tensor flat_;
  at::Tensor flat_grad_;  // Undefined before it is asked for.
  NamedTensors views_;
};

}  // namespace oxbow::model
