// SPDX-License-Identifier: Apache-2.0
// Gives layers their weights by published name, and complains once about everything that does not
// fit.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/model/layers.h"
#include "core/model/lora.h"
#include "core/model/parameters.h"

namespace oxbow::model {

// kInvalidArgument names every tensor that `actual` misses, has in excess or in another shape. The
// shapes may come from files' headers, before anything is read.
absl::Status CheckFit(const Shapes& expected, const Shapes& actual);
absl::Status CheckFit(const Shapes& expected, const NamedTensors& tensors);

class Binding {
 public:
  // Records names and shapes; every tensor it hands out is undefined.
  Binding() = default;
  // Hands out tensors of `tensors`, and of `adapter` unless null. Both outlive the binding.
  Binding(const NamedTensors& tensors, const LoraAdapter* adapter)
      : tensors_(&tensors), adapter_(adapter) {}

  at::Tensor Take(const std::string& name, std::vector<int64_t> shape);

  // `{module}.weight` [out, in], `{module}.bias` [out], and the adapter's pair if it has one.
  Linear TakeLinear(const std::string& module, int64_t in, int64_t out, bool bias = true);

  // The tensors handed out since the last call.
  std::vector<at::Tensor> TakeHandedOut() { return std::exchange(handed_out_, {}); }

  // Whether everything asked for was there, and nothing else. kInvalidArgument names what was not.
  absl::Status Finish() const;

  const Shapes& shapes() const { return shapes_; }
  const LinearModules& linears() const { return linears_; }

 private:
  at::Tensor HandOut(at::Tensor tensor);
  at::Tensor TakeAdapter(const std::string& name, int64_t rows, int64_t columns);

  const NamedTensors* tensors_ = nullptr;
  const LoraAdapter* adapter_ = nullptr;
  Shapes shapes_;
  Shapes adapter_shapes_;
  LinearModules linears_;
  std::vector<at::Tensor> handed_out_;
};

}  // namespace oxbow::model
