// SPDX-License-Identifier: Apache-2.0
#include "core/model/int8_weights.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace oxbow::model {
namespace {

constexpr double kLargest = 127;
// Below this, a layer's product may depend on its place among other rows (layers.h), and there is
// nothing to save.
constexpr int64_t kInt8WidthMin = 16;

// Positive floats as the next bfloat16 that is not smaller.
at::Tensor RoundedUp(const at::Tensor& scale, at::ScalarType type) {
  if (type == at::kFloat) return scale;
  OXBOW_CHECK(type == at::kBFloat16) << "products in " << at::toString(type);
  constexpr int64_t kDropped = 0xffff;  // Bits of a float that a bfloat16 has not.
  return scale.view(at::kInt).add(kDropped).bitwise_and(~kDropped).view(at::kFloat).to(type);
}

at::Tensor Multiplied(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias) {
  return bias.defined() ? at::addmm(bias, rows, weight.t()) : at::mm(rows, weight.t());
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Int8ProductFunction : torch::autograd::Function<Int8ProductFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& values, const at::Tensor& scale,
                            const std::optional<at::Tensor>& bias) {
    context->save_for_backward({values, scale});
    return Multiplied(rows, PlainWeight({values, scale}), bias.value_or(at::Tensor()));
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    return {at::mm(gradients[0], PlainWeight({saved[0], saved[1]})), {}, {}, {}};
  }
};

absl::Status Wrong(const std::string& name, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("int8 weights: ", name, " ", what));
}

}  // namespace

std::string ScaleNameOf(const std::string& weight) { return weight + "_scale"; }

Int8Weight ToInt8(const at::Tensor& weight, at::ScalarType products) {
  const at::NoGradGuard no_grad;
  const at::Tensor exact = weight.to(at::kFloat);
  const at::Tensor most = exact.amax(1, /*keepdim=*/true), least = exact.amin(1, /*keepdim=*/true);
  at::Tensor scale = at::maximum(most, least.neg()).div_(kLargest);
  scale.masked_fill_(scale == 0, 1);
  scale = RoundedUp(scale, products);
  at::Tensor values = exact.div(scale.to(at::kFloat)).round_().clamp_(-kLargest, kLargest);
  return {.values = values.to(at::kChar), .scale = scale};
}

at::Tensor PlainWeight(const Int8Weight& weight) { return at::mul(weight.values, weight.scale); }

at::Tensor Int8Product(const at::Tensor& rows, const Int8Weight& weight, const at::Tensor& bias) {
  const at::ScalarType type = weight.scale.scalar_type();
  const at::Tensor x = rows.to(type);
  const at::Tensor added = bias.defined() ? bias.to(type) : bias;
  if (!at::GradMode::is_enabled() || !x.requires_grad()) {
    return Multiplied(x, PlainWeight(weight), added);
  }
  OXBOW_CHECK(!added.defined() || !added.requires_grad()) << "a bias that trains";
  const auto given = added.defined() ? std::optional(added) : std::nullopt;
  return Int8ProductFunction::apply(x, weight.values, weight.scale, given);
}

std::set<std::string> Int8Names(const Architecture& architecture) {
  std::set<std::string> names;
  for (const auto& [module, widths] : architecture.linears()) {
    const std::string name = module + ".weight";
    const bool small = widths.first < kInt8WidthMin || widths.second < kInt8WidthMin;
    if (!small && !architecture.float32().contains(name)) names.insert(name);
  }
  return names;
}

absl::StatusOr<NamedTensors> TakeScales(NamedTensors& tensors, const std::set<std::string>& names) {
  NamedTensors scales;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.scalar_type() != at::kChar) continue;
    if (!names.contains(name)) return Wrong(name, "is int8, and should not be");
    auto scale = tensors.extract(ScaleNameOf(name));
    if (scale.empty()) return Wrong(name, "has no scale");
    const std::vector<int64_t> shape = {tensor.size(0), 1};
    if (scale.mapped().sizes() != at::IntArrayRef(shape)) {
      return Wrong(scale.key(),
                   absl::StrCat("does not have one value for each of ", shape[0], " rows"));
    }
    scales.insert(std::move(scale));
  }
  return scales;
}

}  // namespace oxbow::model
