// SPDX-License-Identifier: Apache-2.0
#include "core/model/autoencoder_kl_wan.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "core/model/causal_video_blocks.h"

namespace oxbow::model {
namespace {

using WanParams = AutoencoderKlWanParams;

class WanMiddleBlock {
 public:
  WanMiddleBlock(VideoBinding bind, const std::string& name, int64_t channels)
      : first_(bind, name + ".resnets.0", channels, channels),
        attention_(bind.tensors, name + ".attentions.0", channels),
        second_(bind, name + ".resnets.1", channels, channels) {}
  at::Tensor operator()(const at::Tensor& x, History& history) const {
    return second_(attention_(first_(x, history)), history);
  }

 private:
  const VideoResidual first_;
  const FrameAttention attention_;
  const VideoResidual second_;
};

// Residual blocks of one resolution, then the step to the next one.
struct WanLevel {
  std::vector<VideoResidual> resnets;
  std::optional<Upsampler> upsampler;  // All levels but the last have one.
};

class WanDecoder {
 public:
  WanDecoder(VideoBinding bind, const WanParams& p)
      : post_quant_(bind.tensors, "post_quant_conv", p.z_dim, p.z_dim),
        conv_in_(bind, "decoder.conv_in", p.z_dim, Width(p, p.dim_mult.size() - 1)),
        middle_(bind, "decoder.mid_block", Width(p, p.dim_mult.size() - 1)),
        norm_out_(bind.tensors, "decoder.norm_out", Width(p, 0), 3),
        conv_out_(bind, "decoder.conv_out", Width(p, 0), p.out_channels) {
    int64_t in = Width(p, p.dim_mult.size() - 1);
    for (size_t i = 0; i < p.dim_mult.size(); ++i) {
      const std::string name = absl::StrCat("decoder.up_blocks.", i);
      const size_t resolution = p.dim_mult.size() - 1 - i;
      const int64_t out = Width(p, resolution);
      WanLevel& level = levels_.emplace_back();
      for (int64_t k = 0; k <= p.num_res_blocks; ++k) {
        level.resnets.emplace_back(bind, absl::StrCat(name, ".resnets.", k), in, out);
        in = out;
      }
      if (resolution == 0) continue;
      level.upsampler.emplace(bind, name + ".upsamplers.0", out,
                              p.temperal_downsample[resolution - 1]);
      in = out / 2;
    }
  }

  at::Device device() const { return conv_in_.device(); }

  // One latent frame [1, C, 1, h, w] -> the frames that it adds, [1, channels, 1 or time, H, W].
  at::Tensor operator()(const at::Tensor& latent, History& history) const {
    at::Tensor x = middle_(conv_in_(post_quant_(latent), history), history);
    for (const WanLevel& level : levels_) {
      for (const VideoResidual& block : level.resnets) x = block(x, history);
      if (level.upsampler) x = (*level.upsampler)(x, history);
    }
    x = conv_out_(at::silu(norm_out_(x)), history);
    history.EndOfChunk();
    return x.clamp(-1, 1);
  }

 private:
  static int64_t Width(const WanParams& p, size_t resolution) {
    return p.decoder_width() * p.dim_mult[resolution];
  }

  const PixelMap post_quant_;
  const CausalConv conv_in_;
  const WanMiddleBlock middle_;
  std::vector<WanLevel> levels_;
  const ChannelNorm norm_out_;
  const CausalConv conv_out_;
};

// Adds the encoder's tensors, which nothing here computes with.
void TakeEncoder(VideoBinding bind, const WanParams& p) {
  int64_t in = p.base_dim;
  CausalConv(bind, "encoder.conv_in", p.in_channels, in);
  int64_t block = 0;
  const auto name = [&] { return absl::StrCat("encoder.down_blocks.", block++); };
  for (size_t i = 0; i < p.dim_mult.size(); ++i) {
    const int64_t out = p.base_dim * p.dim_mult[i];
    for (int64_t k = 0; k < p.num_res_blocks; ++k) {
      VideoResidual(bind, name(), in, out);
      in = out;
    }
    if (i + 1 == p.dim_mult.size()) continue;
    const std::string downsampler = name();
    bind.tensors.Take(downsampler + ".resample.1.weight", {out, out, 3, 3});
    bind.tensors.Take(downsampler + ".resample.1.bias", {out});
    if (p.temperal_downsample[i]) CausalConv(bind, downsampler + ".time_conv", out, out, 1);
  }
  WanMiddleBlock(bind, "encoder.mid_block", in);
  ChannelNorm(bind.tensors, "encoder.norm_out", in, 3);
  CausalConv(bind, "encoder.conv_out", in, 2 * p.z_dim);
  PixelMap(bind.tensors, "quant_conv", 2 * p.z_dim, 2 * p.z_dim);
}

class WanAutoencoder final : public AutoencoderKlWan {
 public:
  WanAutoencoder(VideoBinding bind, const WanParams& params)
      : params_(params), decoder_(bind, params) {}

  at::Tensor Videos(const at::Tensor& z) const override {
    std::vector<at::Tensor> rows;
    for (int64_t row = 0; row < z.size(0); ++row) {
      std::vector<at::Tensor> chunks;
      ForEachChunk(z, row, [&](const at::Tensor& frames) { chunks.push_back(frames); });
      rows.push_back(at::cat(chunks, 2));
    }
    return at::cat(rows).to(z.device());
  }

  at::Tensor Decode(const at::Tensor& latents) const override {
    if (latents.dim() == 4) return Decode(latents.unsqueeze(2)).squeeze(1);
    const at::NoGradGuard no_grad;
    const int64_t frames = 1 + (latents.size(2) - 1) * params_.time_factor();
    at::Tensor bytes = at::empty({latents.size(0), frames, latents.size(3) * params_.space_factor(),
                                  latents.size(4) * params_.space_factor(), params_.out_channels},
                                 at::kByte);
    for (int64_t row = 0; row < latents.size(0); ++row) {
      int64_t first = 0;
      ForEachChunk(latents, row, [&](const at::Tensor& chunk) {
        const at::Tensor images = ToBytes(chunk.squeeze(0).transpose(0, 1));
        bytes[row].narrow(0, first, images.size(0)).copy_(images);
        first += images.size(0);
      });
    }
    return bytes;
  }

 private:
  // Calls `take` with the frames of each latent frame of a row in turn.
  void ForEachChunk(const at::Tensor& z, int64_t row,
                    const std::function<void(const at::Tensor&)>& take) const {
    OXBOW_CHECK(z.dim() == 5 && z.size(1) == params_.z_dim && z.size(2) > 0)
        << "latents " << z.sizes();
    const auto per_channel = [this](const std::vector<double>& values) {
      return at::tensor(values, at::kFloat).to(decoder_.device()).view({1, -1, 1, 1, 1});
    };
    const at::Tensor mean = per_channel(params_.latents_mean);
    const at::Tensor std = per_channel(params_.latents_std);
    History history;
    for (int64_t t = 0; t < z.size(2); ++t) {
      const at::Tensor latent =
          z.narrow(0, row, 1).narrow(2, t, 1).to(decoder_.device(), at::kFloat);
      take(decoder_(latent * std + mean, history));
    }
  }

  const WanParams params_;
  const WanDecoder decoder_;
};

class WanArchitecture final : public DecoderArchitecture {
 public:
  WanArchitecture(std::string class_name, WanParams params)
      : class_name_(std::move(class_name)),
        params_(std::move(params)),
        of_decoder_(AutoencoderKlWanDecoderShapes(params_)) {}
  const std::string& class_name() const override { return class_name_; }
  int64_t latent_channels() const override { return params_.z_dim; }
  LatentFactors factors() const override {
    return {.time = params_.time_factor(), .space = params_.space_factor()};
  }
  uint64_t DecodingBytes(const std::vector<int64_t>& latent, int64_t /*rows*/,
                         bool /*on_cpu*/) const override {
    const size_t side = latent.size() - 2;
    return AutoencoderKlWanDecodingBytes(params_, latent.size() == 4 ? latent[1] : 1, latent[side],
                                         latent[side + 1]);
  }
  Shapes shapes() const override { return AutoencoderKlWanShapes(params_); }
  bool InDecoder(const std::string& tensor) const override { return of_decoder_.contains(tensor); }
  absl::StatusOr<std::unique_ptr<ImageDecoder>> Make(const NamedTensors& tensors) const override {
    return MakeAutoencoderKlWan(params_, tensors);
  }

 private:
  const std::string class_name_;
  const WanParams params_;
  const Shapes of_decoder_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const DecoderArchitecture>> ReadAutoencoderKlWan(
    const DecoderSource& source) {
  OXBOW_ASSIGN_OR_RETURN(WanParams params, ParseAutoencoderKlWanConfig(source.config_json));
  return std::make_shared<const WanArchitecture>(source.class_name, std::move(params));
}

int64_t AutoencoderKlWanParams::space_factor() const { return int64_t{1} << (dim_mult.size() - 1); }

int64_t AutoencoderKlWanParams::time_factor() const {
  int64_t factor = 1;
  for (const bool halves : temperal_downsample) factor *= halves ? 2 : 1;
  return factor;
}

Shapes AutoencoderKlWanDecoderShapes(const AutoencoderKlWanParams& params) {
  Binding bind;
  ConvolutionNumbers numbers;
  const WanDecoder shape_only({bind, numbers}, params);
  return bind.shapes();
}

uint64_t AutoencoderKlWanDecodingBytes(const AutoencoderKlWanParams& params, int64_t frames,
                                       int64_t height, int64_t width) {
  constexpr int64_t kRemembered = 2;  // Frames, of the input of each convolution.
  const std::vector<int64_t>& multiples = params.dim_mult;
  int64_t in = params.decoder_width() * multiples.back();
  int64_t time = 1;                                               // Frames that one latent becomes.
  int64_t remembered = height * width * (params.z_dim + 4 * in);  // Before the levels.
  int64_t most = 0;
  for (size_t level = 0; level < multiples.size(); ++level) {
    const size_t resolution = multiples.size() - 1 - level;
    const int64_t out = params.decoder_width() * multiples[resolution];
    const int64_t pixels = (height << level) * (width << level);
    // A block's input and all that it makes; the last convolution's input beside what it remembers.
    most = std::max(most, pixels * (time * (3 * in + 4 * out) + (time + kRemembered) * out));
    remembered += pixels * (in + (2 * params.num_res_blocks + 1) * out);
    if (resolution == 0) {
      remembered += pixels * out;  // The last convolution of all.
      continue;
    }
    const bool longer = frames > 1 && params.temperal_downsample[resolution - 1];
    if (longer) remembered += pixels * out;
    time *= longer ? 2 : 1;
    in = out / 2;
  }
  return static_cast<uint64_t>(most + kRemembered * remembered) * sizeof(float);
}

Shapes AutoencoderKlWanShapes(const AutoencoderKlWanParams& params) {
  Binding bind;
  ConvolutionNumbers numbers;
  TakeEncoder({bind, numbers}, params);
  const WanDecoder shape_only({bind, numbers}, params);
  return bind.shapes();
}

absl::StatusOr<std::unique_ptr<AutoencoderKlWan>> MakeAutoencoderKlWan(
    const AutoencoderKlWanParams& params, const NamedTensors& tensors) {
  Binding bind(tensors, /*adapter=*/nullptr);
  ConvolutionNumbers numbers;
  auto model = std::make_unique<WanAutoencoder>(VideoBinding{bind, numbers}, params);
  OXBOW_RETURN_IF_ERROR(Annotate(bind.Finish(), "AutoencoderKLWan"));
  return model;
}

}  // namespace oxbow::model
