// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/patch_convolution.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

namespace oxbow::model::exported {
namespace {

constexpr size_t kConvolutionArguments =
    7;  // input, weight, bias, stride, padding, dilation, groups

// [B, C, n1 k1, n2 k2, ..] -> [B n1 n2 .., C k1 k2 ..]; `counts` becomes n1, n2, ..
at::Tensor Patches(const at::Tensor& x, at::IntArrayRef kernel, std::vector<int64_t>& counts) {
  std::vector<int64_t> split = {x.size(0), x.size(1)};
  std::vector<int64_t> order = {0};
  std::vector<int64_t> inner = {1};
  int64_t rows = x.size(0);
  for (size_t i = 0; i < kernel.size(); ++i) {
    const auto dim = static_cast<int64_t>(i);
    counts.push_back(x.size(dim + 2) / kernel[i]);
    rows *= counts.back();
    split.insert(split.end(), {counts.back(), kernel[i]});
    order.push_back(2 * dim + 2);
    inner.push_back(2 * dim + 3);
  }
  order.insert(order.end(), inner.begin(), inner.end());
  return x.reshape(split).permute(order).reshape({rows, -1});
}

}  // namespace

bool AllAre(const std::vector<int64_t>& numbers, int64_t wanted) {
  return std::all_of(numbers.begin(), numbers.end(), [=](int64_t n) { return n == wanted; });
}

bool IsConvolution(std::string_view name, std::string_view overload) {
  return overload.empty() &&
         (name == "aten::conv1d" || name == "aten::conv2d" || name == "aten::conv3d");
}

bool ConvolvePatches(torch::jit::Stack& stack) {
  const auto numbers = [](const c10::IValue& value) { return value.isIntList(); };
  if (stack.size() != kConvolutionArguments || !std::all_of(&stack[3], &stack[6], numbers))
    return false;
  const at::Tensor x = stack[0].toTensor();
  const at::Tensor weight = stack[1].toTensor();
  if (weight.dim() != x.dim() || weight.size(1) != x.size(1)) return false;
  const at::IntArrayRef kernel = weight.sizes().slice(2);
  const std::vector<int64_t> stride = stack[3].toIntVector();
  if (!AllAre(stack[4].toIntVector(), 0) || !AllAre(stack[5].toIntVector(), 1)) return false;
  for (size_t i = 0; i < kernel.size(); ++i) {
    const int64_t step = stride.size() == 1 ? stride[0] : stride.at(i);
    if (step != kernel[i] || x.size(static_cast<int64_t>(i) + 2) % step != 0) return false;
  }
  std::vector<int64_t> counts;
  const at::Tensor patches = Patches(x, kernel, counts);
  const at::Tensor matrix = weight.reshape({weight.size(0), -1}).t();
  const at::Tensor tokens = stack[2].isTensor() ? at::addmm(stack[2].toTensor(), patches, matrix)
                                                : at::mm(patches, matrix);
  counts.insert(counts.begin(), x.size(0));
  counts.push_back(weight.size(0));
  stack.assign({tokens.view(counts).movedim(-1, 1)});
  return true;
}

}  // namespace oxbow::model::exported
