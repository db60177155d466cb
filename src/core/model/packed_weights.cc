// SPDX-License-Identifier: Apache-2.0
#include "core/model/packed_weights.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include <optional>

namespace oxbow::model {
namespace {

// Operators of PyTorch's own compiler (torch.compile), which no header declares.
std::optional<c10::OperatorHandle> FindOperator(const char* name) {
  return c10::Dispatcher::singleton().findSchema({name, ""});
}

const std::optional<c10::OperatorHandle>& Reorder() {
  static const auto found = FindOperator("mkldnn::_reorder_linear_weight");
  return found;
}

const std::optional<c10::OperatorHandle>& MultiplyPacked() {
  static const auto found = FindOperator("mkldnn::_linear_pointwise");
  return found;
}

at::Tensor Call(const c10::OperatorHandle& operation, torch::jit::Stack stack) {
  operation.callBoxed(stack);
  return stack.front().toTensor();
}

}  // namespace

at::Tensor Packed(const at::Tensor& weight) {
  const bool can = Reorder() && MultiplyPacked() && at::hasMKLDNN() && weight.is_cpu() &&
                   weight.scalar_type() == at::kFloat && weight.dim() == 2 && weight.numel() > 0 &&
                   !weight.is_mkldnn();
  if (!can) return weight;
  const at::NoGradGuard no_gradients;
  const c10::IValue any_number_of_rows;
  return Call(*Reorder(), {weight.detach().contiguous(), any_number_of_rows});
}

void PackLinears(const LinearModules& modules, NamedTensors& weights) {
  for (const auto& [module, shape] : modules) {
    const auto found = weights.find(module + ".weight");
    if (found != weights.end()) found->second = Packed(found->second);
  }
}

at::Tensor PackedProduct(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias) {
  const c10::IValue added = bias.defined() ? c10::IValue(bias) : c10::IValue();
  return Call(*MultiplyPacked(),
              {rows, weight, added, "none", c10::List<std::optional<at::Scalar>>(), ""});
}

}  // namespace oxbow::model
