// SPDX-License-Identifier: Apache-2.0
// cuDNN's convolutions and PyTorch's depthwise ones, by CPU LibTorch's.
#include <ATen/ATen.h>
#include <ATen/native/ConvUtils.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/rehearsal/floating_point_operations.h"
#include "tests/rehearsal/kernel_view.h"
#include "tests/rehearsal/launch.h"

namespace oxbow::rehearsal {
namespace {

// How a filter moves over its input.
struct Strides {
  std::vector<int64_t> stride, padding, dilation, output_padding;
  bool transposed = false;
  int64_t groups = 1;
};

at::Tensor Convolve(const std::string& name, const at::Tensor& x, const at::Tensor& weight,
                    const at::Tensor& bias, const Strides& shape) {
  const auto sizes = shape.transposed
                         ? at::native::conv_input_size(x.sizes(), weight.sizes(), shape.padding,
                                                       shape.output_padding, shape.stride,
                                                       shape.dilation, shape.groups)
                         : at::native::conv_output_size(x.sizes(), weight.sizes(), shape.padding,
                                                        shape.stride, shape.dilation);
  const at::Tensor y = Empty(sizes, x.scalar_type(), x.device());
  Launch launch{.name = name,
                .reads = {x, weight},
                .writes = {y},
                .flop = ConvolutionFlop(shape.transposed ? x : y, weight)};
  std::optional<KernelView> shift;
  if (bias.defined()) {
    launch.reads.push_back(bias);
    shift.emplace(bias);
  }
  RunOnOneDevice(
      launch, [x = KernelView(x), weight = KernelView(weight), y = KernelView(y), shift, shape] {
        y.Tensor().copy_(at::convolution(x.Tensor(), weight.Tensor(),
                                         shift ? std::optional(shift->Tensor()) : std::nullopt,
                                         shape.stride, shape.padding, shape.dilation,
                                         shape.transposed, shape.output_padding, shape.groups));
      });
  return y;
}

at::Tensor CudnnConvolution(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef padding,
                            at::IntArrayRef stride, at::IntArrayRef dilation, int64_t groups, bool,
                            bool, bool) {
  return Convolve("aten::cudnn_convolution", x, weight, {},
                  {.stride = stride.vec(),
                   .padding = padding.vec(),
                   .dilation = dilation.vec(),
                   .output_padding = std::vector<int64_t>(stride.size()),
                   .groups = groups});
}

at::Tensor CudnnTransposed(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef padding,
                           at::IntArrayRef output_padding, at::IntArrayRef stride,
                           at::IntArrayRef dilation, int64_t groups, bool, bool, bool) {
  return Convolve("aten::cudnn_convolution_transpose", x, weight, {},
                  {.stride = stride.vec(),
                   .padding = padding.vec(),
                   .dilation = dilation.vec(),
                   .output_padding = output_padding.vec(),
                   .transposed = true,
                   .groups = groups});
}

// PyTorch's own, a filter for each channel.
at::Tensor Depthwise(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef,
                     const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                     at::IntArrayRef padding, at::IntArrayRef dilation) {
  return Convolve("aten::_conv_depthwise2d", x, weight, bias.value_or(at::Tensor()),
                  {.stride = stride.vec(),
                   .padding = padding.vec(),
                   .dilation = dilation.vec(),
                   .output_padding = {0, 0},
                   .groups = x.size(1)});
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
  library.impl("cudnn_convolution", TORCH_FN(CudnnConvolution));
  library.impl("cudnn_convolution_transpose", TORCH_FN(CudnnTransposed));
  library.impl("_conv_depthwise2d", TORCH_FN(Depthwise));
  library.impl("convolution_backward", TORCH_FN(ConvolveBackward));
}

}  // namespace
}  // namespace oxbow::rehearsal
