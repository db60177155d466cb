// From latents to 8-bit images: what scorers and people see.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/parameters.h"

namespace oxbow::model {

class ImageDecoder {
 public:
  virtual ~ImageDecoder() = default;

  // latents [B, C, H, W] or [B, C, F, H, W] float32 -> uint8 [B, height, width, channels]. The
  // frames of a video lie side by side in one image.
  virtual at::Tensor Decode(const at::Tensor& latents) const = 0;
};

// Images [B, C, H, W] or videos [B, C, F, H, W] in about [-1, 1] -> uint8 [B, H, W, C] or
// [B, H, F W, C]: round(255 clamp(x / 2 + 1/2)).
at::Tensor ToBytes(const at::Tensor& images);

// For models without an autoencoder, whose latent is the image in [-1, 1].
std::unique_ptr<ImageDecoder> MakePixelDecoder();

// The decoder that vae/config.json describes, over `tensors`, which are the decoder's; without a
// config (empty) the pixels themselves. kInvalidArgument for another config, and for tensors that
// do not fit it.
absl::StatusOr<std::unique_ptr<ImageDecoder>> MakeImageDecoder(
    const std::string& autoencoder_config_json, const NamedTensors& tensors);

}  // namespace oxbow::model
