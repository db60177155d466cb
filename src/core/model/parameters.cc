// SPDX-License-Identifier: Apache-2.0
#include "core/model/parameters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>

#include <utility>

#include "base/check.h"
#include "core/model/offloaded_weights.h"

namespace oxbow::model {
namespace {

constexpr size_t kPage = 4096;

size_t WholePages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Gives the tensor other memory, and returns what it had. Its views see the other at once.
at::DataPtr Replace(const at::Tensor& tensor, at::DataPtr memory) {
  return tensor.storage().set_data_ptr(std::move(memory));
}

// A tensor like `like` in this memory.
at::Tensor Over(at::DataPtr memory, const at::Tensor& like) {
  at::Tensor tensor = at::empty({0}, like.options().pinned_memory(false));
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(like.sizes());
  impl->set_storage_keep_dtype(c10::Storage(c10::Storage::use_byte_size_t(), like.nbytes(),
                                            std::move(memory), /*allocator=*/nullptr,
                                            /*resizable=*/false));
  return tensor;
}

}  // namespace

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

ParameterSet::ParameterSet(const Shapes& shapes, bool trainable, OffloadedWeights& offloaded,
                           const std::set<std::string>& narrow)
    : ParameterSet(shapes, offloaded.host_options(), offloaded.device()) {
  offloaded_ = &offloaded;
  if (!narrow.empty()) {
    narrow_ = std::make_unique<NarrowCopy>();
    narrow_->values = at::empty({numel()}, offloaded.host_options().dtype(at::kBFloat16));
  }
  for (const auto& [name, view] : views_) {
    const bool rounds = narrow.contains(name);
    leaves_.emplace(name, offloaded.Leaf(view, trainable, rounds ? narrow_.get() : nullptr));
  }
}

ParameterSet::~ParameterSet() = default;

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
  OXBOW_CHECK(flat_.is_cpu()) << "weights on a device have no second place";
  if (!next_.defined()) {
    next_ = at::empty(flat_.sizes(), flat_.options().pinned_memory(device_.is_cuda()));
  }
  return next_;
}

void ParameterSet::ExchangeWithNext() {
  at::DataPtr mine = Replace(flat_, at::DataPtr());
  (void)Replace(flat_, Replace(next(), std::move(mine)));
  flat_.unsafeGetTensorImpl()->bump_version();
}

at::Tensor ParameterSet::narrow() const {
  return narrow_ == nullptr ? at::Tensor() : narrow_->values;
}

void ParameterSet::BeginNarrow() {
  if (offloaded_ != nullptr) offloaded_->WaitUntilRead();
  if (narrow_ != nullptr) narrow_->version.reset();
}

void ParameterSet::EndNarrow() {
  if (narrow_ != nullptr) narrow_->version = static_cast<uint32_t>(flat_._version());
}

void ParameterSet::ExchangeWith(ParameterSet& other) {
  OXBOW_CHECK(flat_.is_cpu() && other.flat_.is_cpu() && numel() == other.numel())
      << flat_.toString() << numel() << other.flat_.toString() << other.numel();
  const bool right =
      narrow_ != nullptr && narrow_->version == static_cast<uint32_t>(flat_._version());
  at::DataPtr mine = Replace(flat_, at::DataPtr());
  (void)Replace(flat_, Replace(other.flat_, std::move(mine)));
  for (ParameterSet* const set : {this, &other}) {
    set->flat_.unsafeGetTensorImpl()->bump_version();
  }
  if (std::exchange(narrow_is_of_other_, right)) EndNarrow();
}

size_t ParameterSet::SharedBytes() const {
  const size_t narrow = narrow_ == nullptr ? 0 : narrow_->values.nbytes();
  return 2 * WholePages(flat_.nbytes()) + WholePages(narrow);
}

void ParameterSet::MoveTo(const SharedPlace& place, MemoryShare share) {
  const at::NoGradGuard no_grad;
  BeginNarrow();
  const size_t bytes = WholePages(flat_.nbytes());
  const at::Tensor before = Over(Replace(flat_, place(bytes)), flat_);
  if (share.place == 0) flat_.copy_(before);
  flat_.unsafeGetTensorImpl()->bump_version();
  next_ = Over(place(bytes), flat_);
  if (narrow_ != nullptr) {
    (void)Replace(narrow_->values, place(WholePages(narrow_->values.nbytes())));
  }
  share_ = share;
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
