// SPDX-License-Identifier: Apache-2.0
#include "core/model/binding.h"

#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "core/model/int8_weights.h"

namespace oxbow::model {
namespace {

std::string Spell(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ","), "]");
}

}  // namespace

absl::Status CheckFit(const Shapes& expected, const Shapes& actual) {
  std::vector<std::string> missing, extra, misshapen;
  for (const auto& [name, shape] : expected) {
    const auto found = actual.find(name);
    if (found == actual.end()) {
      missing.push_back(name);
    } else if (found->second != shape) {
      misshapen.push_back(
          absl::StrCat(name, " ", Spell(found->second), " instead of ", Spell(shape)));
    }
  }
  for (const auto& [name, shape] : actual) {
    if (!expected.contains(name)) extra.push_back(name);
  }
  std::vector<std::string> complaints;
  if (!missing.empty()) complaints.push_back("missing: " + absl::StrJoin(missing, ", "));
  if (!extra.empty()) complaints.push_back("unexpected: " + absl::StrJoin(extra, ", "));
  if (!misshapen.empty()) complaints.push_back("wrong shape: " + absl::StrJoin(misshapen, ", "));
  if (complaints.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("tensors do not fit the config; " +
                                    absl::StrJoin(complaints, "; "));
}

absl::Status CheckFit(const Shapes& expected, const NamedTensors& tensors) {
  return CheckFit(expected, ShapesOf(tensors));
}

at::Tensor Binding::HandOut(at::Tensor tensor) {
  handed_out_.push_back(tensor);
  return tensor;
}

at::Tensor Binding::Take(const std::string& name, std::vector<int64_t> shape) {
  shapes_[name] = std::move(shape);
  if (tensors_ == nullptr) return {};
  const auto found = tensors_->find(name);
  return found == tensors_->end() ? at::Tensor() : HandOut(found->second);
}

at::Tensor Binding::TakeAdapter(const std::string& name, int64_t rows, int64_t columns) {
  adapter_shapes_[name] = {rows, columns};
  const auto found = adapter_->tensors.find(name);
  return found == adapter_->tensors.end() ? at::Tensor() : HandOut(found->second);
}

Linear Binding::TakeLinear(const std::string& module, int64_t in, int64_t out, bool bias) {
  linears_[module] = {in, out};
  const std::string weight = module + ".weight";
  Linear linear{.weight = Take(weight, {out, in})};
  if (linear.weight.defined() && linear.weight.scalar_type() == at::kChar) {
    linear.scale = Take(ScaleNameOf(weight), {out, 1});
  }
  if (bias) linear.bias = Take(module + ".bias", {out});
  if (adapter_ == nullptr) return linear;
  const std::string a = module + ".lora_A.weight", b = module + ".lora_B.weight";
  const auto found = adapter_->tensors.find(a);
  if (found == adapter_->tensors.end()) return linear;
  const int64_t rank = found->second.dim() == 2 ? found->second.size(0) : 1;
  linear.lora_a = TakeAdapter(a, rank, in);
  linear.lora_b = TakeAdapter(b, out, rank);
  linear.lora_scale = adapter_->scale;
  return linear;
}

absl::Status Binding::Finish() const {
  if (tensors_ != nullptr) OXBOW_RETURN_IF_ERROR(CheckFit(shapes_, *tensors_));
  if (adapter_ == nullptr) return absl::OkStatus();
  return Annotate(CheckFit(adapter_shapes_, adapter_->tensors), "adapter");
}

}  // namespace oxbow::model
