// SPDX-License-Identifier: Apache-2.0
#include "core/model/parameters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/check.h"

namespace oxbow::model {

ParameterSet::ParameterSet(const NamedTensors& tensors, bool trainable, at::Device device) {
  const at::NoGradGuard no_grad;
  int64_t numel = 0;
  for (const auto& [name, tensor] : tensors) numel += tensor.numel();
  flat_ = at::empty({numel}, at::TensorOptions(device).dtype(at::kFloat));
  int64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    // detach(): a leaf of its own, yet on the flat tensor's version counter, so that an optimiser
    // step between a forward and its backward is caught by autograd.
    at::Tensor view = flat_.narrow(0, offset, tensor.numel()).view(tensor.sizes()).detach();
    view.copy_(tensor);
    view.requires_grad_(trainable);
    offset += tensor.numel();
    views_.emplace(name, std::move(view));
  }
}

const at::Tensor& ParameterSet::Get(const std::string& name) const {
  const auto found = views_.find(name);
  OXBOW_CHECK(found != views_.end()) << "no parameter named " << name;
  return found->second;
}

bool ParameterSet::Has(const std::string& name) const { return views_.contains(name); }

int64_t ParameterSet::numel() const { return flat_.numel(); }

at::Tensor& ParameterSet::flat_grad() {
  if (flat_grad_.defined()) return flat_grad_;
  const at::NoGradGuard no_grad;
  flat_grad_ = at::zeros_like(flat_);
  int64_t offset = 0;
  for (auto& [name, view] : views_) {
    OXBOW_CHECK(view.requires_grad()) << "parameters are not trainable";
    at::Tensor grad = flat_grad_.narrow(0, offset, view.numel()).view(view.sizes());
    if (view.grad().defined()) grad.copy_(view.grad());
    view.mutable_grad() = grad;
    offset += view.numel();
  }
  return flat_grad_;
}

void ParameterSet::ZeroGrad() { flat_grad().zero_(); }

void ParameterSet::CopyFrom(const ParameterSet& other) {
  OXBOW_CHECK(views_.size() == other.views_.size()) << views_.size() << other.views_.size();
  for (const auto& [name, view] : views_) {
    const auto found = other.views_.find(name);
    OXBOW_CHECK(found != other.views_.end() && found->second.sizes() == view.sizes())
        << "parameter sets differ at " << name;
  }
  const at::NoGradGuard no_grad;
  flat_.copy_(other.flat_);
}

}  // namespace oxbow::model
