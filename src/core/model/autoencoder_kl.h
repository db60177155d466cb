// SPDX-License-Identifier: Apache-2.0
// Autoencoder with a Gaussian bottleneck (arXiv:2112.10752), as diffusers' AutoencoderKL.
//
// Images in [-1, 1] to latents of 1 / factor the side, and back; z is what the velocity model
// sees:
//
//   mean, log variance = encoder(image)     z = (mean + std noise - shift) scale
//   image = decoder(z / scale + shift)
//
// Both halves are residual convolutions, between resolutions doubled or halved, with one
// self-attention over all pixels in the middle. Weights have their published names. Stable
// Diffusion 3 and FLUX share the sizes and differ in scale and shift; the older autoencoders with
// quant_conv and post_quant_conv fit too.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/decoder_architecture.h"
#include "core/model/image_decoder.h"
#include "core/model/lora.h"
#include "core/model/parameters.h"

namespace oxbow::model {

// Keys and defaults of vae/config.json.
struct AutoencoderKlParams {
  int64_t in_channels = 3;
  int64_t out_channels = 3;
  int64_t latent_channels = 4;
  std::vector<int64_t> block_out_channels = {64};  // Widths, finest resolution first.
  int64_t layers_per_block = 1;                    // Residual blocks; the decoder has one more.
  int64_t norm_num_groups = 32;
  int64_t sample_size = 32;
  double scaling_factor = 0.18215;
  double shift_factor = 0;
  bool use_quant_conv = true;
  bool use_post_quant_conv = true;
  bool mid_block_add_attention = true;

  // Pixels of an image's side per latent.
  int64_t factor() const { return int64_t{1} << (block_out_channels.size() - 1); }
};

// Keys starting with '_' are ignored; other unknown keys are errors unless null. kInvalidArgument.
absl::StatusOr<AutoencoderKlParams> ParseAutoencoderKlConfig(const std::string& config_json);

// Sampling needs the decoder alone, half the weights.
enum class AutoencoderPart { kDecoder, kWhole };

// Whether a tensor of a checkpoint belongs to this part.
bool BelongsTo(AutoencoderPart part, const std::string& name);

// Bytes that a device holds at most, beside the weights, while it decodes `rows` latents of
// `height` x `width`: in one level, all that its blocks make.
uint64_t AutoencoderKlDecodingBytes(const AutoencoderKlParams& params, int64_t height,
                                    int64_t width, int64_t rows, bool on_cpu);

// Name -> shape of every tensor of the part.
Shapes AutoencoderKlShapes(const AutoencoderKlParams& params, AutoencoderPart part);

// A diagonal Gaussian over z: [B, C, H, W] each. A draw is mean + std * noise.
struct LatentDistribution {
  at::Tensor mean;
  at::Tensor std;
};

class AutoencoderKl : public ImageDecoder {
 public:
  // z [B, C, h, w] -> images [B, channels, h * factor, w * factor] in about [-1, 1]. Both
  // methods are differentiable. A row depends on its own row alone, bit for bit: rows are computed
  // one after another, which also bounds the memory taken.
  virtual at::Tensor Images(const at::Tensor& z) const = 0;

  // Images [B, channels, H, W], sides multiples of the factor. Requires kWhole.
  virtual LatentDistribution Encode(const at::Tensor& images) const = 0;
};

// Binds (does not copy) `tensors`: all of AutoencoderKlShapes and nothing else, in float32.
// kInvalidArgument names every missing, extra or misshapen tensor.
absl::StatusOr<std::unique_ptr<AutoencoderKl>> MakeAutoencoderKl(const AutoencoderKlParams& params,
                                                                 const NamedTensors& tensors,
                                                                 AutoencoderPart part);

// The row of decoder_table.cc.
absl::StatusOr<std::shared_ptr<const DecoderArchitecture>> ReadAutoencoderKl(
    const DecoderSource& source);

}  // namespace oxbow::model
