// SPDX-License-Identifier: Apache-2.0
// cuDNN's convolutions, by CPU LibTorch's.
#include <ATen/ATen.h>
#include <ATen/native/ConvUtils.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "tests/rehearsal/floating_point_operations.h"
#include "tests/rehearsal/kernel_view.h"
#include "tests/rehearsal/launch.h"

namespace oxbow::rehearsal {
namespace {

at::Tensor Convolve(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef padding,
                    at::IntArrayRef stride, at::IntArrayRef dilation, int64_t groups, bool, bool,
                    bool) {
  const at::Tensor y =
      Empty(at::native::conv_output_size(x.sizes(), weight.sizes(), padding, stride, dilation),
            x.scalar_type(), x.device());
  RunOnOneDevice(
      {.name = "aten::cudnn_convolution",
       .reads = {x, weight},
       .writes = {y},
       .flop = ConvolutionFlop(y, weight)},
      [x = KernelView(x), weight = KernelView(weight), y = KernelView(y), stride = stride.vec(),
       padding = padding.vec(), dilation = dilation.vec(), groups] {
        const std::vector<int64_t> none(stride.size(), 0);
        y.Tensor().copy_(at::convolution(x.Tensor(), weight.Tensor(), {}, stride, padding, dilation,
                                         /*transposed=*/false, none, groups));
      });
  return y;
}

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Three ConvolveBackward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                       at::OptionalIntArrayRef bias_sizes, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> wanted) {
  std::array<at::Tensor, 3> made;
  if (wanted[0]) made[0] = Empty(x.sizes(), x.scalar_type(), x.device());
  if (wanted[1]) made[1] = Empty(weight.sizes(), x.scalar_type(), x.device());
  if (wanted[2]) made[2] = Empty({grad.size(1)}, x.scalar_type(), x.device());
  Launch launch{.name = "aten::convolution_backward", .reads = {grad, x, weight}, .writes = {}};
  std::array<std::optional<KernelView>, 3> views;
  for (size_t i = 0; i < made.size(); ++i) {
    if (!wanted[i]) continue;
    launch.writes.push_back(made[i]);
    views[i].emplace(made[i]);
    if (i < 2) launch.flop += ConvolutionFlop(grad, weight);
  }
  const std::optional<std::vector<int64_t>> bias =
      bias_sizes ? std::optional(bias_sizes->vec()) : std::nullopt;
  RunOnOneDevice(
      launch, [grad = KernelView(grad), x = KernelView(x), weight = KernelView(weight), views, bias,
               stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(),
               transposed, output_padding = output_padding.vec(), groups, wanted] {
        const auto [dx, dw, db] = at::convolution_backward(
            grad.Tensor(), x.Tensor(), weight.Tensor(),
            bias ? at::OptionalIntArrayRef(*bias) : at::OptionalIntArrayRef(), stride, padding,
            dilation, transposed, output_padding, groups, wanted);
        const std::array<at::Tensor, 3> results = {dx, dw, db};
        for (size_t i = 0; i < views.size(); ++i) {
          if (views[i]) views[i]->Tensor().copy_(results[i]);
        }
      });
  return {made[0], made[1], made[2]};
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("cudnn_convolution", TORCH_FN(Convolve));
  library.impl("convolution_backward", TORCH_FN(ConvolveBackward));
}

}  // namespace
}  // namespace oxbow::rehearsal
