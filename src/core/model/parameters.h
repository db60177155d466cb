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
  // every view is an autograd leaf whose .grad is a view of flat_grad(), so backward() accumulates
  // in place.
  ParameterSet(const NamedTensors& tensors, bool trainable, at::Device device = at::kCPU);

  const at::Tensor& Get(const std::string& name) const;  // Dies if absent.
  bool Has(const std::string& name) const;
  const NamedTensors& tensors() const { return views_; }
  int64_t numel() const;

  at::Tensor& flat() { return flat_; }
  const at::Tensor& flat() const { return flat_; }
  at::Tensor& flat_grad() { return flat_grad_; }  // Undefined unless trainable.

  void ZeroGrad();
  void CopyFrom(const ParameterSet& other);  // Same names and shapes required.

 private:
  at::Tensor flat_;
  at::Tensor flat_grad_;
  NamedTensors views_;
};

}  // namespace oxbow::model
