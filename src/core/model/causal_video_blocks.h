// SPDX-License-Identifier: Apache-2.0
// Blocks of causal video autoencoders (Wan, arXiv:2503.20314), frame by frame: a frame depends on
// itself and on earlier ones alone.
//
// All take and give frames [1, C, T, H, W]: the T frames that follow those of the last call with
// the same History. So a clip can come in pieces, with the result of the whole.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/model/binding.h"
#include "core/model/layers.h"

namespace oxbow::model {

// The last two inputs of every causal convolution of a network, zeros before the first frame. An
// empty one begins a clip.
class History {
 public:
  // The two frames before `x`, then x.
  at::Tensor Continued(size_t convolution, const at::Tensor& x);
  // True until the first frame has gone through the whole network.
  bool begins() const { return begins_; }
  void EndOfChunk() { begins_ = false; }

 private:
  std::vector<at::Tensor> last_;  // [1, C, 2, H, W] by convolution.
  bool begins_ = true;
};

// Numbers convolutions in the order in which a network is built.
class ConvolutionNumbers {
 public:
  size_t Next() { return next_++; }

 private:
  size_t next_ = 0;
};

// State that the parts of one network share while it is built.
struct VideoBinding {
  Binding& tensors;
  ConvolutionNumbers& numbers;
};

// x / |x| sqrt(C) gamma over the channels of every pixel.
struct ChannelNorm {
  // `axes`: dimensions after the channels in gamma's shape, 3 for videos.
  ChannelNorm(Binding& bind, const std::string& name, int64_t channels, size_t axes);
  at::Tensor operator()(const at::Tensor& x) const;
  at::Tensor gamma;
  double scale;
};

// A convolution over a frame and the two before it, same sizes. kernel: 3 x 3 x 3, or 3 x 1 x 1.
class CausalConv {
 public:
  CausalConv(VideoBinding bind, const std::string& name, int64_t in, int64_t out, int64_t side = 3);
  at::Tensor operator()(const at::Tensor& x, History& history) const;
  at::Device device() const { return weight_.device(); }

 private:
  at::Tensor weight_, bias_;
  int64_t padding_;
  size_t number_;
};

// The same linear map for every pixel of every frame.
class PixelMap {
 public:
  PixelMap(Binding& bind, const std::string& name, int64_t in, int64_t out);
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  at::Tensor weight_, bias_;
};

// x + conv(silu(norm(conv(silu(norm x))))), x through a linear map where widths differ.
class VideoResidual {
 public:
  VideoResidual(VideoBinding bind, const std::string& name, int64_t in, int64_t out);
  at::Tensor operator()(const at::Tensor& x, History& history) const;

 private:
  ChannelNorm norm1_;
  CausalConv conv1_;
  ChannelNorm norm2_;
  CausalConv conv2_;
  std::optional<PixelMap> shortcut_;
};

// One head over the pixels of each frame.
class FrameAttention {
 public:
  FrameAttention(Binding& bind, const std::string& name, int64_t channels);
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  ChannelNorm norm_;
  at::Tensor qkv_weight_, qkv_bias_, out_weight_, out_bias_;
};

// Twice the height and width and half the channels; with `time` also twice the frames, of which a
// clip's first stays one.
class Upsampler {
 public:
  Upsampler(VideoBinding bind, const std::string& name, int64_t channels, bool time);
  at::Tensor operator()(const at::Tensor& x, History& history) const;

 private:
  at::Tensor weight_, bias_;
  std::optional<CausalConv> time_conv_;
};

}  // namespace oxbow::model
