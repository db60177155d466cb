// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/shape_stand_ins.h"

#include <ATen/ATen.h>

#include <array>
#include <optional>
#include <string_view>

namespace oxbow::model::exported {
namespace {

using Arguments = const torch::jit::Stack&;

at::Tensor Where(Arguments in) {
  const at::Tensor& condition = in[0].toTensor();
  if (in[1].isTensor() && in[2].isTensor()) {
    return at::add(at::mul(in[1].toTensor(), condition), in[2].toTensor());
  }
  if (in[1].isTensor()) return at::mul(in[1].toTensor(), condition);
  return in[2].isTensor() ? at::mul(in[2].toTensor(), condition) : condition.to(at::kFloat);
}

at::Tensor IndexSelect(Arguments in) {
  const at::Tensor& self = in[0].toTensor();
  const int64_t dim = at::maybe_wrap_dim(in[1].toInt(), self.dim());
  std::vector<int64_t> shape = self.sizes().vec();
  shape[static_cast<size_t>(dim)] = in[2].toTensor().numel();
  return self.narrow(dim, 0, 1).expand(shape).clone();
}

at::Tensor Embedding(Arguments in) {
  std::vector<int64_t> shape = in[1].toTensor().sizes().vec();
  shape.push_back(in[0].toTensor().size(1));
  return in[0].toTensor().select(0, 0).expand(shape).clone();
}

at::Tensor Norm(Arguments in) {
  const at::Tensor& x = in[0].toTensor();
  const bool weighted =
      in.size() > 2 && in[2].isTensor() &&
      in[2].toTensor().sizes() == x.sizes().slice(x.dim() - in[2].toTensor().dim());
  return weighted ? at::mul(x, in[2].toTensor()) : x.clone();
}

// Stride, padding and dilation have a number per dimension, or one for all.
int64_t Along(const c10::IValue& list, size_t dimension) {
  const std::vector<int64_t> numbers = list.toIntVector();
  return numbers[numbers.size() == 1 ? 0 : dimension];
}

// input [B, C, ...], weight [out, C / groups, ...], bias, stride, padding, dilation, groups.
at::Tensor Convolution(Arguments in) {
  const at::Tensor &x = in[0].toTensor(), &weight = in[1].toTensor();
  TORCH_CHECK(x.dim() == weight.dim() && in[4].isIntList(), "a convolution of ", x.sizes(),
              " with ", weight.sizes());
  TORCH_CHECK(x.size(1) == weight.size(1) * in[6].toInt(), "a convolution of ", x.size(1),
              " channels with weights of ", weight.size(1));
  std::vector<int64_t> shape = {x.size(0), weight.size(0)};
  for (int64_t d = 2; d < x.dim(); ++d) {
    const auto i = static_cast<size_t>(d - 2);
    const int64_t reach = Along(in[5], i) * (weight.size(d) - 1) + 1, stride = Along(in[3], i);
    TORCH_CHECK(stride > 0, "a convolution's stride of ", stride);
    shape.push_back((x.size(d) + 2 * Along(in[4], i) - reach) / stride + 1);
  }
  return at::add(at::zeros(shape, x.options()), weight.sum());
}

at::Tensor Attention(Arguments in) {
  return at::matmul(at::matmul(in[0].toTensor(), in[1].toTensor().transpose(-2, -1)),
                    in[2].toTensor());
}

// input [B, C, H, W], grid [B, H', W', 2].
at::Tensor GridSampler(Arguments in) {
  const at::Tensor &x = in[0].toTensor(), &grid = in[1].toTensor();
  TORCH_CHECK(x.dim() == 4 && grid.dim() == 4 && grid.size(0) == x.size(0) && grid.size(3) == 2,
              "grid_sampler of ", x.sizes(), " at ", grid.sizes());
  return at::zeros({x.size(0), x.size(1), grid.size(1), grid.size(2)}, x.options());
}

at::Tensor Polar(Arguments in) {
  return at::mul(in[0].toTensor().to(at::kComplexFloat), in[1].toTensor());
}

struct Row {
  std::string_view op;
  at::Tensor (*run)(Arguments in);
};

constexpr std::array<Row, 16> kStandIns = {{
    {"aten::conv1d", Convolution},
    {"aten::conv2d", Convolution},
    {"aten::conv3d", Convolution},
    {"aten::grid_sampler", GridSampler},
    {"aten::group_norm", [](Arguments in) { return in[0].toTensor().clone(); }},
    {"aten::layer_norm", Norm},
    {"aten::polar", Polar},
    {"aten::scaled_dot_product_attention", Attention},
    {"aten::where", Where},
    {"aten::index_select", IndexSelect},
    {"aten::embedding", Embedding},
    {"aten::floor_divide",
     [](Arguments in) { return at::div(in[0].toTensor(), in[1].toTensor(), "floor"); }},
    {"aten::rsub", [](Arguments in) { return at::sub(in[1].toTensor(), in[0].toTensor()); }},
    {"aten::relu", [](Arguments in) { return at::clamp_min(in[0].toTensor(), 0); }},
    {"aten::flip", [](Arguments in) { return in[0].toTensor().clone(); }},
    {"aten::roll", [](Arguments in) { return in[0].toTensor().clone(); }},
}};

}  // namespace

bool StandIn(const std::string& op, torch::jit::Stack& stack) {
  for (const Row& row : kStandIns) {
    if (row.op != op) continue;
    at::Tensor result = row.run(stack);
    stack.assign(1, std::move(result));
    return true;
  }
  return false;
}

}  // namespace oxbow::model::exported
