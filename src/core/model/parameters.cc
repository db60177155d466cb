// SPDX-License-Identifier: Apache-2.0
#include "core/model/parameters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>

#include <utility>

#include "base/check.h"
#include "core/model/offloaded_weights.h"

namespace oxbow::model {

Shapes ShapesOf(const NamedTensors& tensors) {
  Shapes shapes;
  for (const auto& [name, tensor] : tensors) shapes[name] = tensor.sizes().vec();
  return shapes;
}

ParameterSet::ParameterSet(const Shapes& shapes, at::TensorOptions flat, at::Device device)
    : device_(device) {
  const at::NoGradGuard no_grad;
  int64_t numel = 0;
  for (const auto& [name, shape] : shapes) numel += c10::multiply_integers(shape);
  flat_ = at::empty({numel}, flat);
  int64_t offset = 0;
  for (const auto& [name, shape] : shapes) {
    const int64_t length = c10::multiply_integers(shape);
    // detach(): a leaf of its own, yet on the flat tensor's version counter, so that an optimiser
    // step between a forward and its backward is caught by autograd.
    views_.emplace(name, flat_.narrow(0, offset, length).view(shape).detach());
    offset += length;
  }
}

ParameterSet::ParameterSet(const Shapes& shapes, bool trainable, at::Device device)
    : ParameterSet(shapes, at::TensorOptions(device).dtype(at::kFloat), device) {
  for (auto& [name, view] : views_) view.requires_grad_(trainable);
  leaves_ = views_;
}

ParameterSet::ParameterSet(const Shapes& shapes, bool trainable, OffloadedWeights& offloaded)
    : ParameterSet(shapes, offloaded.host_options(), offloaded.device()) {
  offloaded_ = true;
  for (const auto& [name, view] : views_) leaves_.emplace(name, offloaded.Leaf(view, trainable));
}

ParameterSet::ParameterSet(const NamedTensors& tensors, bool trainable, at::Device device)
    : ParameterSet(ShapesOf(tensors), trainable, device) {
  CopyFrom(tensors);
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
  flat_grad_ = at::zeros({numel()}, at::TensorOptions(device_).dtype(at::kFloat));
  int64_t offset = 0;
  for (auto& [name, leaf] : leaves_) {
    OXBOW_CHECK(leaf.requires_grad()) << "parameters are not trainable";
    at::Tensor grad = flat_grad_.narrow(0, offset, leaf.numel()).view(leaf.sizes());
    if (leaf.grad().defined()) grad.copy_(leaf.grad());
    leaf.mutable_grad() = grad;
    offset += leaf.numel();
  }
  return flat_grad_;
}

void ParameterSet::ZeroGrad() { flat_grad().zero_(); }

at::Tensor& ParameterSet::next() {
  OXBOW_CHECK(offloaded_) << "weights on a device have no second place";
  if (!next_.defined()) {
    next_ = at::empty(flat_.sizes(), flat_.options().pinned_memory(device_.is_cuda()));
  }
  return next_;
}

// Views of the flat tensor have its storage, so they see the other memory at once.
void ParameterSet::ExchangeWithNext() {
  const c10::Storage& theirs = next().storage();
  at::DataPtr mine = flat_.storage().set_data_ptr(at::DataPtr());
  flat_.storage().set_data_ptr_noswap(theirs.set_data_ptr(std::move(mine)));
  flat_.unsafeGetTensorImpl()->bump_version();
}

void ParameterSet::CopyFrom(const NamedTensors& tensors) {
  const at::NoGradGuard no_grad;
  OXBOW_CHECK(views_.size() == tensors.size()) << views_.size() << tensors.size();
  for (auto& [name, view] : views_) view.copy_(tensors.at(name));
}

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
