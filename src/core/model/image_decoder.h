// SPDX-License-Identifier: Apache-2.0
// From latents to 8-bit pictures and videos: what scorers and people see.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/image8.h"
#include "core/model/parameters.h"

namespace oxbow::model {

class ImageDecoder {
 public:
  virtual ~ImageDecoder() = default;

  // latents [B, C, H, W] float32 -> uint8 [B, height, width, channels];
  // latents [B, C, F, H, W] float32 -> uint8 [B, frames, height, width, channels].
  virtual at::Tensor Decode(const at::Tensor& latents) const = 0;
};

// Images [B, C, H, W] or videos [B, C, F, H, W] in about [-1, 1] -> uint8 [B, H, W, C] or
// [B, F, H, W, C]: round(255 clamp(x / 2 + 1/2)).
at::Tensor ToBytes(const at::Tensor& images);

// The frames of sample `index` of what a decoder gives, in the order of time; a picture is one
// frame. Requires uint8 [B, H, W, C] or [B, F, H, W, C] on the processor.
std::vector<Image8> FramesOf(const at::Tensor& decoded, int64_t index);

// The frames of each sample. Pictures are decoded as one batch, videos one by one: a clip takes the
// memory of many pictures.
std::vector<std::vector<Image8>> DecodeFrames(const ImageDecoder& decoder,
                                              const at::Tensor& latents);

// For models without an autoencoder, whose latent is the image in [-1, 1].
std::unique_ptr<ImageDecoder> MakePixelDecoder();

// The decoder that vae/config.json describes, with its exported graph if it needs one, over
// `tensors`, which are the decoder's; without a config (empty) the pixels themselves.
// kInvalidArgument for another config or graph, and for tensors that do not fit it.
absl::StatusOr<std::unique_ptr<ImageDecoder>> MakeImageDecoder(
    const std::string& autoencoder_config_json, const std::string& graph_json,
    const NamedTensors& tensors);

}  // namespace oxbow::model
