// SPDX-License-Identifier: Apache-2.0
#include "core/model/completed_adapter.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace oxbow::model {
namespace {

// `own` and behind it what `wide` has more along `dimension`.
at::Tensor Widened(const at::Tensor& own, const at::Tensor& wide, int64_t dimension) {
  const bool smaller = own.dim() == 2 && own.size(1 - dimension) == wide.size(1 - dimension) &&
                       own.size(dimension) < wide.size(dimension);
  if (!smaller) return own;
  return at::cat({own.to(wide.device()),
                  wide.detach().slice(dimension, own.size(dimension), wide.size(dimension))},
                 dimension);
}

}  // namespace

NamedTensors CompletedAdapter(const NamedTensors& fresh, const NamedTensors& adapter) {
  const at::NoGradGuard no_grad;
  NamedTensors whole = adapter;
  for (const auto& [name, wide] : fresh) {
    const auto own = adapter.find(name);
    whole[name] = own == adapter.end()
                      ? wide.detach().clone()
                      : Widened(own->second, wide, name.ends_with(".lora_A.weight") ? 0 : 1);
  }
  return whole;
}

}  // namespace oxbow::model
