// SPDX-License-Identifier: Apache-2.0
#include "core/model/fused/head_layers.h"

// Set by the build where CUDA's compiler is.
#if OXBOW_HAS_FUSED_KERNELS
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "core/model/fused/kernel_launch.h"
#endif

namespace oxbow::model::fused {

#if OXBOW_HAS_FUSED_KERNELS
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kPack = 8;  // Values that a thread reads at once.
constexpr size_t kTensorsOfPart = 4;

// Rows of one part: those that are normalised. y is a part of a joint result.
HeadRows RowsOf(const HeadPart& part, const at::Tensor& y) {
  const at::Tensor& x = part.x;
  const bool whole = part.norm && part.whole;
  return {.samples = x.size(0),
          .tokens = x.size(1),
          .heads = whole ? 1 : x.size(2),
          .width = whole ? x.size(2) * x.size(3) : x.size(3),
          .x_sample = x.stride(0),
          .x_token = x.stride(1),
          .y_sample = y.stride(0),
          .y_token = y.stride(1),
          .norm = part.norm,
          .eps = static_cast<float>(part.eps)};
}

// The layout of a part's angles; nullopt if no kernel reads them so. Requires part.cos.
std::optional<Turn> TurnOf(const HeadPart& part) {
  const at::Tensor& x = part.x;
  const bool complex = !part.sin.defined();
  const at::ScalarType type = complex ? at::kComplexFloat : at::kFloat;
  std::vector<int64_t> sizes = x.sizes().vec();
  if (complex) sizes.back() /= 2;
  std::vector<int64_t> strides;
  for (const at::Tensor& angle : {part.cos, complex ? part.cos : part.sin}) {
    if (!angle.is_cuda() || angle.scalar_type() != type || angle.requires_grad() ||
        angle.dim() == 0 || angle.size(-1) != sizes.back() || angle.stride(-1) != 1 ||
        !at::is_expandable_to(angle.sizes(), sizes)) {
      return std::nullopt;
    }
    const at::Tensor all = angle.expand(sizes);
    if (!strides.empty() && all.strides() != at::IntArrayRef(strides)) return std::nullopt;
    strides = all.strides().vec();
    if (x.size(2) > 1 && strides[2] != 0) return std::nullopt;
  }
  const int64_t values = complex ? 2 : 1;
  const auto* cos = static_cast<const float*>(part.cos.const_data_ptr());
  return Turn{.cos = cos,
              .sin = complex ? cos + 1 : part.sin.const_data_ptr<float>(),
              .sample = x.size(0) == 1 ? 0 : values * strides[0],
              .token = values * strides[1],
              .width = x.size(3),
              .of_pairs = complex};
}

// Side by side within a token, the weight too; y as its tokens of a joint result.
bool Fits(const HeadPart& part, const at::Tensor& y) {
  const at::Tensor& x = part.x;
  if (!KernelFits(x, kPack * x.element_size()) || x.dim() != 4 || x.numel() == 0 ||
      x.size(3) % kPack != 0 || x.stride(3) != 1 || (x.size(2) > 1 && x.stride(2) != x.size(3)) ||
      x.stride(0) % kPack != 0 || x.stride(1) % kPack != 0) {
    return false;
  }
  const HeadRows rows = RowsOf(part, y);
  if (!TakesHeadRows(rows)) return false;
  const at::Tensor& weight = part.weight;
  if (weight.defined() && (!KernelFits(weight) || !weight.is_contiguous() || Trains(weight) ||
                           weight.numel() != rows.width)) {
    return false;
  }
  return !part.cos.defined() || TurnOf(part).has_value();
}

Turn TurnOrNone(const HeadPart& part) { return part.cos.defined() ? *TurnOf(part) : Turn(); }

at::Tensor PartOf(const at::Tensor& joint, int64_t& from, const HeadPart& part) {
  const at::Tensor tokens = joint.narrow(1, from, part.x.size(1));
  from += part.x.size(1);
  return tokens;
}

// The result before it is one: no argument of autograd's.
struct Joint {
  at::Tensor y;
};

struct JoinHeadsFunction : torch::autograd::Function<JoinHeadsFunction> {
  // `sources`: x of each part. Weights and angles want no gradients.
  static at::Tensor forward(AutogradContext* context, at::TensorList /*sources*/,
                            const std::vector<HeadPart>& parts, const Joint& joint) {
    const at::Tensor& y = joint.y;
    variable_list kept;
    std::vector<int64_t> norms, wholes;
    std::vector<double> eps;
    int64_t from = 0;
    for (const HeadPart& part : parts) {
      const at::Tensor tokens = PartOf(y, from, part);
      const Launch launch(y);
      TurnHeads(ValuesOf(part.x), ValuesOf(part.weight), TurnOrNone(part), ResultsOf(tokens),
                RowsOf(part, tokens), launch.stream);
      kept.insert(kept.end(), {part.x, part.weight, part.cos, part.sin});
      norms.push_back(part.norm);
      wholes.push_back(part.whole);
      eps.push_back(part.eps);
    }
    context->save_for_backward(std::move(kept));
    context->saved_data["norms"] = norms;
    context->saved_data["wholes"] = wholes;
    context->saved_data["eps"] = eps;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto norms = context->saved_data["norms"].toIntVector();
    const auto wholes = context->saved_data["wholes"].toIntVector();
    const auto eps = context->saved_data["eps"].toDoubleVector();
    const at::Tensor dy = Readable(gradients[0]);
    variable_list results;
    int64_t from = 0;
    for (size_t i = 0; i < norms.size(); ++i) {
      const at::Tensor* of = &saved[i * kTensorsOfPart];
      const HeadPart part{.x = of[0],
                          .norm = norms[i] != 0,
                          .whole = wholes[i] != 0,
                          .eps = eps[i],
                          .weight = of[1],
                          .cos = of[2],
                          .sin = of[3]};
      const at::Tensor tokens = PartOf(dy, from, part);
      at::Tensor dx;
      if (context->needs_input_grad(i)) {
        dx = at::empty(part.x.sizes(), part.x.options());
        const Launch launch(dx);
        TurnHeadsGradient(ValuesOf(part.x), ValuesOf(part.weight), TurnOrNone(part),
                          ValuesOf(tokens), ResultsOf(dx), RowsOf(part, tokens), launch.stream);
      }
      results.push_back(dx);
    }
    results.insert(results.end(), {{}, {}});
    return results;
  }

  // Heads of a token side by side; attention may give them in another order.
  static at::Tensor Readable(const at::Tensor& dy) {
    const bool plain = dy.stride(3) == 1 && dy.stride(2) == dy.size(3) &&
                       dy.stride(0) % kPack == 0 && dy.stride(1) % kPack == 0 &&
                       KernelFits(dy, kPack * dy.element_size());
    return plain ? dy : dy.contiguous();
  }
};

}  // namespace

std::optional<at::Tensor> JoinHeads(const std::vector<HeadPart>& parts, at::ScalarType out) {
  if (parts.empty() || !IsElement(out) || parts[0].x.dim() != 4) return std::nullopt;
  std::vector<int64_t> sizes = parts[0].x.sizes().vec();
  sizes[1] = 0;
  variable_list sources;
  for (const HeadPart& part : parts) {
    if (part.x.dim() != 4 || part.x.size(0) != sizes[0] || part.x.size(2) != sizes[2] ||
        part.x.size(3) != sizes[3]) {
      return std::nullopt;
    }
    sizes[1] += part.x.size(1);
    sources.push_back(part.x);
  }
  if (!parts[0].x.is_cuda()) return std::nullopt;
  const at::Tensor y = at::empty(sizes, parts[0].x.options().dtype(out));
  int64_t from = 0;
  for (const HeadPart& part : parts) {
    if (!Fits(part, PartOf(y, from, part))) return std::nullopt;
  }
  return JoinHeadsFunction::apply(at::TensorList(sources), parts, Joint{y});
}

#else

std::optional<at::Tensor> JoinHeads(const std::vector<HeadPart>&, at::ScalarType) {
  return std::nullopt;
}

#endif

}  // namespace oxbow::model::fused
