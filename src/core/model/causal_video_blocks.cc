// SPDX-License-Identifier: Apache-2.0
#include "core/model/causal_video_blocks.h"

#include <ATen/ATen.h>

#include <cmath>

namespace oxbow::model {
namespace {

constexpr int64_t kTime = 2;     // The dimension of frames.
constexpr int64_t kEarlier = 2;  // Frames before the present one that a convolution sees.
constexpr double kNormMin = 1e-12;

// [1, C, T, H, W] <-> [T, C, H, W]
at::Tensor AsImages(const at::Tensor& frames) { return frames.squeeze(0).transpose(0, 1); }
at::Tensor AsFrames(const at::Tensor& images) { return images.transpose(0, 1).unsqueeze(0); }

}  // namespace

at::Tensor History::Continued(size_t convolution, const at::Tensor& x) {
  if (last_.size() <= convolution) last_.resize(convolution + 1);
  at::Tensor& last = last_[convolution];
  if (!last.defined()) {
    last = at::zeros({1, x.size(1), kEarlier, x.size(3), x.size(4)}, x.options());
  }
  at::Tensor continued = at::cat({last, x}, kTime);
  // A copy: a view would keep all of these frames alive.
  last = continued.narrow(kTime, continued.size(kTime) - kEarlier, kEarlier).clone();
  return continued;
}

ChannelNorm::ChannelNorm(Binding& bind, const std::string& name, int64_t channels, size_t axes)
    : scale(std::sqrt(static_cast<double>(channels))) {
  std::vector<int64_t> shape(axes + 1, 1);
  shape[0] = channels;
  gamma = bind.Take(name + ".gamma", shape);
}

at::Tensor ChannelNorm::operator()(const at::Tensor& x) const {
  return x / at::linalg_vector_norm(x, 2, {1}, /*keepdim=*/true).clamp_min(kNormMin) * scale *
         gamma;
}

CausalConv::CausalConv(VideoBinding bind, const std::string& name, int64_t in, int64_t out,
                       int64_t side)
    : weight_(bind.tensors.Take(name + ".weight", {out, in, kEarlier + 1, side, side})),
      bias_(bind.tensors.Take(name + ".bias", {out})),
      padding_(side / 2),
      number_(bind.numbers.Next()) {}

at::Tensor CausalConv::operator()(const at::Tensor& x, History& history) const {
  return at::conv3d(history.Continued(number_, x), weight_, bias_, /*stride=*/1,
                    {0, padding_, padding_});
}

PixelMap::PixelMap(Binding& bind, const std::string& name, int64_t in, int64_t out)
    : weight_(bind.Take(name + ".weight", {out, in, 1, 1, 1})),
      bias_(bind.Take(name + ".bias", {out})) {}

at::Tensor PixelMap::operator()(const at::Tensor& x) const { return at::conv3d(x, weight_, bias_); }

VideoResidual::VideoResidual(VideoBinding bind, const std::string& name, int64_t in, int64_t out)
    : norm1_(bind.tensors, name + ".norm1", in, 3),
      conv1_(bind, name + ".conv1", in, out),
      norm2_(bind.tensors, name + ".norm2", out, 3),
      conv2_(bind, name + ".conv2", out, out) {
  if (in != out) shortcut_.emplace(bind.tensors, name + ".conv_shortcut", in, out);
}

at::Tensor VideoResidual::operator()(const at::Tensor& x, History& history) const {
  const at::Tensor y = conv2_(at::silu(norm2_(conv1_(at::silu(norm1_(x)), history))), history);
  return y + (shortcut_ ? (*shortcut_)(x) : x);
}

FrameAttention::FrameAttention(Binding& bind, const std::string& name, int64_t channels)
    : norm_(bind, name + ".norm", channels, 2),
      qkv_weight_(bind.Take(name + ".to_qkv.weight", {3 * channels, channels, 1, 1})),
      qkv_bias_(bind.Take(name + ".to_qkv.bias", {3 * channels})),
      out_weight_(bind.Take(name + ".proj.weight", {channels, channels, 1, 1})),
      out_bias_(bind.Take(name + ".proj.bias", {channels})) {}

at::Tensor FrameAttention::operator()(const at::Tensor& x) const {
  const at::Tensor images = AsImages(x);
  const auto qkv = at::conv2d(norm_(images), qkv_weight_, qkv_bias_).chunk(3, 1);
  const auto tokens = [](const at::Tensor& part) {  // [T, pixels, 1 head, C]
    return part.flatten(2).transpose(1, 2).contiguous().unsqueeze(2);
  };
  const at::Tensor o = Attend(tokens(qkv[0]), tokens(qkv[1]), tokens(qkv[2]), /*causal=*/false);
  const at::Tensor mixed = o.transpose(1, 2).reshape(images.sizes());
  return x + AsFrames(at::conv2d(mixed, out_weight_, out_bias_));
}

Upsampler::Upsampler(VideoBinding bind, const std::string& name, int64_t channels, bool time)
    : weight_(bind.tensors.Take(name + ".resample.1.weight", {channels / 2, channels, 3, 3})),
      bias_(bind.tensors.Take(name + ".resample.1.bias", {channels / 2})) {
  if (time) time_conv_.emplace(bind, name + ".time_conv", channels, 2 * channels, /*side=*/1);
}

at::Tensor Upsampler::operator()(const at::Tensor& x, History& history) const {
  at::Tensor frames = x;
  if (time_conv_ && !history.begins()) {
    // Channels of the earlier frame of each pair, then of the later one.
    const at::Tensor pairs = (*time_conv_)(x, history);
    frames = pairs.view({1, 2, x.size(1), x.size(2), x.size(3), x.size(4)})
                 .permute({0, 2, 3, 1, 4, 5})
                 .flatten(2, 3);
  }
  const at::Tensor images = AsImages(frames);
  const at::Tensor larger =
      at::upsample_nearest2d(images, {2 * images.size(2), 2 * images.size(3)});
  return AsFrames(at::conv2d(larger, weight_, bias_, /*stride=*/1, /*padding=*/1));
}

}  // namespace oxbow::model
