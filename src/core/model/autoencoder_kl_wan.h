// SPDX-License-Identifier: Apache-2.0
// The video autoencoder of Wan2.1 (arXiv:2503.20314), as diffusers' AutoencoderKLWan, which is also
// Qwen-Image's under the name AutoencoderKLQwenImage: the decoder.
//
// z [B, C, T, h, w] is what the velocity model sees. The video has 1 + (T - 1) time frames, with
// `time` frames for every latent frame but the first, and `space` times the side:
//
//   video = clamp(decoder(z std + mean), -1, 1)        mean, std per channel
//
// Latent frames are decoded one after another: every convolution looks back at its last two inputs,
// which are kept. So memory is that of a few frames, whatever the length.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/decoder_architecture.h"
#include "core/model/image_decoder.h"
#include "core/model/parameters.h"

namespace oxbow::model {

// Keys and defaults of vae/config.json.
struct AutoencoderKlWanParams {
  int64_t base_dim = 96;
  int64_t decoder_base_dim = 0;  // 0: base_dim.
  int64_t z_dim = 16;
  std::vector<int64_t> dim_mult = {1, 2, 4, 4};  // Widths over base_dim, finest resolution first.
  int64_t num_res_blocks = 2;                    // Per level; the decoder has one more.
  std::vector<bool> temperal_downsample = {false, true, true};  // Published spelling.
  int64_t in_channels = 3;
  int64_t out_channels = 3;
  std::vector<double> latents_mean;  // z_dim values each; the default is Wan2.1's.
  std::vector<double> latents_std;

  int64_t decoder_width() const { return decoder_base_dim == 0 ? base_dim : decoder_base_dim; }
  // Pixels of a side per latent, and frames per latent frame but the first.
  int64_t space_factor() const;
  int64_t time_factor() const;
};

// Keys starting with '_' are ignored; other unknown keys are errors unless null, as are those of
// Wan2.2's other body (is_residual, patch_size). kInvalidArgument.
absl::StatusOr<AutoencoderKlWanParams> ParseAutoencoderKlWanConfig(const std::string& config_json);

// Bytes that a device holds at most, beside the weights, while it decodes a clip of so many latent
// frames of `height` x `width`: what a block makes of the frames of one latent, and the frames that
// every convolution remembers.
uint64_t AutoencoderKlWanDecodingBytes(const AutoencoderKlWanParams& params, int64_t frames,
                                       int64_t height, int64_t width);

// Name -> shape of every tensor of a checkpoint, and of the decoder's.
Shapes AutoencoderKlWanShapes(const AutoencoderKlWanParams& params);
Shapes AutoencoderKlWanDecoderShapes(const AutoencoderKlWanParams& params);

class AutoencoderKlWan : public ImageDecoder {
 public:
  // z [B, C, T, h, w] -> videos [B, channels, F, H, W] in [-1, 1], float32 on z's device. Rows are
  // decoded one after another: a row depends on its own row alone, bit for bit.
  virtual at::Tensor Videos(const at::Tensor& z) const = 0;

  // uint8 [B, F, H, W, channels]; of images' latents [B, C, h, w] the one frame of each,
  // [B, H, W, channels].
  at::Tensor Decode(const at::Tensor& latents) const override = 0;
};

// Binds (does not copy) `tensors`: all of the decoder's and nothing else, in float32.
// kInvalidArgument names every missing, extra or misshapen tensor.
absl::StatusOr<std::unique_ptr<AutoencoderKlWan>> MakeAutoencoderKlWan(
    const AutoencoderKlWanParams& params, const NamedTensors& tensors);

// The rows of decoder_table.cc.
absl::StatusOr<std::shared_ptr<const DecoderArchitecture>> ReadAutoencoderKlWan(
    const DecoderSource& source);

}  // namespace oxbow::model
