// SPDX-License-Identifier: Apache-2.0
#include "core/model/autoencoder_kl.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "core/model/binding.h"
#include "core/model/device_memory.h"
#include "core/model/layers.h"

namespace oxbow::model {
namespace {

constexpr double kGroupNormEpsilon = 1e-6;
constexpr double kLogVarianceMin = -30;
constexpr double kLogVarianceMax = 20;

struct GroupNorm {
  GroupNorm(Binding& bind, const std::string& name, int64_t channels, int64_t groups)
      : weight(bind.Take(name + ".weight", {channels})),
        bias(bind.Take(name + ".bias", {channels})),
        groups(groups) {}
  at::Tensor operator()(const at::Tensor& x) const {
    return at::group_norm(x, groups, weight, bias, kGroupNormEpsilon);
  }
  at::Tensor weight, bias;
  int64_t groups;
};

// The kernel's size is odd; same resolution unless `stride` and `padding` say otherwise.
struct Conv {
  Conv(Binding& bind, const std::string& name, int64_t in, int64_t out, int64_t size)
      : weight(bind.Take(name + ".weight", {out, in, size, size})),
        bias(bind.Take(name + ".bias", {out})),
        padding(size / 2) {}
  at::Tensor operator()(const at::Tensor& x) const {
    return at::conv2d(x, weight, bias, /*stride=*/1, padding);
  }
  // Half the resolution: one row and column of zeros below and to the right.
  at::Tensor Halved(const at::Tensor& x) const {
    return at::conv2d(at::constant_pad_nd(x, {0, 1, 0, 1}), weight, bias, /*stride=*/2);
  }
  at::Tensor weight, bias;
  int64_t padding;
};

// x + conv(silu(norm(conv(silu(norm x))))), x through a 1 x 1 convolution where widths differ.
// Without gradients: activations and the sum are computed in place, and nothing is kept that the
// next layer does not read.
class ResidualBlock {
 public:
  ResidualBlock(Binding& bind, const std::string& name, int64_t in, int64_t out, int64_t groups)
      : norm1_(bind, name + ".norm1", in, groups),
        conv1_(bind, name + ".conv1", in, out, 3),
        norm2_(bind, name + ".norm2", out, groups),
        conv2_(bind, name + ".conv2", out, out, 3) {
    if (in != out) shortcut_.emplace(bind, name + ".conv_shortcut", in, out, 1);
  }
  at::Tensor operator()(const at::Tensor& x) const {
    at::Tensor y = norm1_(x);
    y = conv1_(at::silu_(y));
    y = norm2_(y);
    y = conv2_(at::silu_(y));
    return y.add_(shortcut_ ? (*shortcut_)(x) : x);
  }

 private:
  const GroupNorm norm1_;
  const Conv conv1_;
  const GroupNorm norm2_;
  const Conv conv2_;
  std::optional<Conv> shortcut_;
};

// One head over all pixels.
class PixelAttention {
 public:
  PixelAttention(Binding& bind, const std::string& name, int64_t channels, int64_t groups)
      : norm_(bind, name + ".group_norm", channels, groups),
        to_q_(bind.TakeLinear(name + ".to_q", channels, channels)),
        to_k_(bind.TakeLinear(name + ".to_k", channels, channels)),
        to_v_(bind.TakeLinear(name + ".to_v", channels, channels)),
        to_out_(bind.TakeLinear(name + ".to_out.0", channels, channels)) {}

  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor tokens = norm_(x).flatten(2).transpose(1, 2);  // [B, N, C]
    const at::Tensor o = Attend(to_q_(tokens).unsqueeze(2), to_k_(tokens).unsqueeze(2),
                                to_v_(tokens).unsqueeze(2), /*causal=*/false);
    return x + to_out_(o).transpose(1, 2).reshape(x.sizes());
  }

 private:
  const GroupNorm norm_;
  const Linear to_q_, to_k_, to_v_, to_out_;
};

class MiddleBlock {
 public:
  MiddleBlock(Binding& bind, const std::string& name, const AutoencoderKlParams& p)
      : first_(bind, name + ".resnets.0", Width(p), Width(p), p.norm_num_groups),
        second_(bind, name + ".resnets.1", Width(p), Width(p), p.norm_num_groups) {
    if (p.mid_block_add_attention) {
      attention_.emplace(bind, name + ".attentions.0", Width(p), p.norm_num_groups);
    }
  }
  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor y = first_(x);
    return second_(attention_ ? (*attention_)(y) : y);
  }

 private:
  static int64_t Width(const AutoencoderKlParams& p) { return p.block_out_channels.back(); }
  const ResidualBlock first_, second_;
  std::optional<PixelAttention> attention_;
};

// Residual blocks of one resolution, then the convolution that leads to the next one.
struct Level {
  Level(Binding& bind, const std::string& name, int64_t in, int64_t out, int64_t blocks,
        int64_t groups) {
    for (int64_t i = 0; i < blocks; ++i) {
      resnets.emplace_back(bind, absl::StrCat(name, ".resnets.", i), i == 0 ? in : out, out,
                           groups);
    }
  }
  at::Tensor Residual(at::Tensor x) const {
    for (const ResidualBlock& block : resnets) x = block(x);
    return x;
  }
  std::vector<ResidualBlock> resnets;
  std::optional<Conv> resampler;  // All levels but the last have one.
};

class Encoder {
 public:
  Encoder(Binding& bind, const AutoencoderKlParams& p)
      : conv_in_(bind, "encoder.conv_in", p.in_channels, p.block_out_channels.front(), 3),
        middle_(bind, "encoder.mid_block", p),
        norm_out_(bind, "encoder.conv_norm_out", p.block_out_channels.back(), p.norm_num_groups),
        conv_out_(bind, "encoder.conv_out", p.block_out_channels.back(), 2 * p.latent_channels, 3) {
    int64_t in = p.block_out_channels.front();
    for (size_t i = 0; i < p.block_out_channels.size(); ++i) {
      const std::string name = absl::StrCat("encoder.down_blocks.", i);
      const int64_t out = p.block_out_channels[i];
      levels_.emplace_back(bind, name, in, out, p.layers_per_block, p.norm_num_groups);
      if (i + 1 < p.block_out_channels.size()) {
        levels_.back().resampler.emplace(bind, name + ".downsamplers.0.conv", out, out, 3);
      }
      in = out;
    }
    if (p.use_quant_conv) {
      quant_.emplace(bind, "quant_conv", 2 * p.latent_channels, 2 * p.latent_channels, 1);
    }
  }

  // [B, channels, H, W] -> [B, 2 latent_channels, h, w]: means, then log variances.
  at::Tensor operator()(const at::Tensor& images) const {
    at::Tensor x = conv_in_(images);
    for (const Level& level : levels_) {
      x = level.Residual(std::move(x));
      if (level.resampler) x = level.resampler->Halved(x);
    }
    x = conv_out_(at::silu(norm_out_(middle_(x))));
    return quant_ ? (*quant_)(x) : x;
  }

 private:
  const Conv conv_in_;
  std::vector<Level> levels_;
  const MiddleBlock middle_;
  const GroupNorm norm_out_;
  const Conv conv_out_;
  std::optional<Conv> quant_;
};

class Decoder {
 public:
  Decoder(Binding& bind, const AutoencoderKlParams& p)
      : conv_in_(bind, "decoder.conv_in", p.latent_channels, p.block_out_channels.back(), 3),
        middle_(bind, "decoder.mid_block", p),
        norm_out_(bind, "decoder.conv_norm_out", p.block_out_channels.front(), p.norm_num_groups),
        conv_out_(bind, "decoder.conv_out", p.block_out_channels.front(), p.out_channels, 3) {
    const size_t count = p.block_out_channels.size();
    int64_t in = p.block_out_channels.back();
    for (size_t i = 0; i < count; ++i) {
      const std::string name = absl::StrCat("decoder.up_blocks.", i);
      const int64_t out = p.block_out_channels[count - 1 - i];
      levels_.emplace_back(bind, name, in, out, p.layers_per_block + 1, p.norm_num_groups);
      if (i + 1 < count) {
        levels_.back().resampler.emplace(bind, name + ".upsamplers.0.conv", out, out, 3);
      }
      in = out;
    }
    if (p.use_post_quant_conv) {
      post_quant_.emplace(bind, "post_quant_conv", p.latent_channels, p.latent_channels, 1);
    }
  }

  at::Device device() const { return conv_in_.weight.device(); }
  // Not where only shapes are asked for, without weights.
  bool on_gpu() const { return conv_in_.weight.defined() && !device().is_cpu(); }

  // [B, latent_channels, h, w] -> [B, channels, H, W]
  at::Tensor operator()(const at::Tensor& latents) const {
    at::Tensor x = middle_(conv_in_(post_quant_ ? (*post_quant_)(latents) : latents));
    for (const Level& level : levels_) {
      x = level.Residual(std::move(x));
      if (level.resampler) {
        x = at::upsample_nearest2d(x, {2 * x.size(2), 2 * x.size(3)});
        x = (*level.resampler)(x);
      }
    }
    x = norm_out_(x);
    return conv_out_(at::silu_(x));
  }

 private:
  const Conv conv_in_;
  const MiddleBlock middle_;
  std::vector<Level> levels_;
  const GroupNorm norm_out_;
  const Conv conv_out_;
  std::optional<Conv> post_quant_;
};

at::Tensor RowByRow(const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& f) {
  std::vector<at::Tensor> rows;
  for (int64_t i = 0; i < x.size(0); ++i) rows.push_back(f(x.narrow(0, i, 1)));
  return at::cat(rows);
}

// A GPU decodes several images at once. A CPU is not faster so, and one by one their bits do not
// depend on the batch.
constexpr int64_t kRowsOnGpu = 8;

class Autoencoder final : public AutoencoderKl {
 public:
  Autoencoder(Binding& bind, const AutoencoderKlParams& params, AutoencoderPart part)
      : params_(params), decoder_(bind, params), rows_max_(decoder_.on_gpu() ? kRowsOnGpu : 1) {
    if (part == AutoencoderPart::kWhole) encoder_.emplace(bind, params);
  }

  at::Tensor Images(const at::Tensor& z) const override {
    return Decoded(z, [](const at::Tensor& images) { return images; });
  }

  at::Tensor Decode(const at::Tensor& latents) const override {
    const at::NoGradGuard no_grad;
    return Decoded(latents.to(at::kFloat), ToBytes);
  }

  LatentDistribution Encode(const at::Tensor& images) const override {
    OXBOW_CHECK(encoder_.has_value()) << "autoencoder was made without its encoder";
    OXBOW_CHECK(images.dim() == 4 && images.size(0) > 0 && images.size(1) == params_.in_channels &&
                images.size(2) % params_.factor() == 0 && images.size(3) % params_.factor() == 0)
        << "images " << images.sizes() << " for a factor of " << params_.factor();
    const auto moments =
        RowByRow(images, [this](const at::Tensor& row) { return (*encoder_)(row); }).chunk(2, 1);
    const at::Tensor log_variance = moments[1].clamp(kLogVarianceMin, kLogVarianceMax);
    return {.mean = (moments[0] - params_.shift_factor) * params_.scaling_factor,
            .std = at::exp(log_variance * 0.5) * params_.scaling_factor};
  }

 private:
  // finish(images), some rows at a time. It runs where the decoder is: bytes are a quarter of what
  // comes from there otherwise.
  at::Tensor Decoded(const at::Tensor& z,
                     const std::function<at::Tensor(const at::Tensor&)>& finish) const {
    OXBOW_CHECK(z.dim() == 4 && z.size(0) > 0 && z.size(1) == params_.latent_channels)
        << "latents " << z.sizes();
    const at::Tensor latents = z / params_.scaling_factor + params_.shift_factor;
    return InPortions(z.size(0), rows_max_, "the image decoder", [&](int64_t row, int64_t count) {
      return finish(decoder_(latents.narrow(0, row, count).to(decoder_.device()))).to(z.device());
    });
  }

  const AutoencoderKlParams params_;
  const Decoder decoder_;
  mutable std::atomic<int64_t> rows_max_;  // That the decoder takes at a time.
  std::optional<Encoder> encoder_;
};

class KlArchitecture final : public DecoderArchitecture {
 public:
  KlArchitecture(std::string class_name, AutoencoderKlParams params)
      : class_name_(std::move(class_name)), params_(std::move(params)) {}
  const std::string& class_name() const override { return class_name_; }
  int64_t latent_channels() const override { return params_.latent_channels; }
  LatentFactors factors() const override { return {.space = params_.factor()}; }
  Shapes shapes() const override { return AutoencoderKlShapes(params_, AutoencoderPart::kWhole); }
  bool InDecoder(const std::string& tensor) const override {
    return BelongsTo(AutoencoderPart::kDecoder, tensor);
  }
  uint64_t DecodingBytes(const std::vector<int64_t>& latent, int64_t rows,
                         bool on_cpu) const override {
    return AutoencoderKlDecodingBytes(params_, latent[1], latent[2], rows, on_cpu);
  }
  absl::StatusOr<std::unique_ptr<ImageDecoder>> Make(const NamedTensors& tensors) const override {
    return MakeAutoencoderKl(params_, tensors, AutoencoderPart::kDecoder);
  }

 private:
  const std::string class_name_;
  const AutoencoderKlParams params_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const DecoderArchitecture>> ReadAutoencoderKl(
    const DecoderSource& source) {
  OXBOW_ASSIGN_OR_RETURN(AutoencoderKlParams params, ParseAutoencoderKlConfig(source.config_json));
  return std::make_shared<const KlArchitecture>(source.class_name, std::move(params));
}

bool BelongsTo(AutoencoderPart part, const std::string& name) {
  return part == AutoencoderPart::kWhole || name.starts_with("decoder.") ||
         name.starts_with("post_quant_conv.");
}

uint64_t AutoencoderKlDecodingBytes(const AutoencoderKlParams& params, int64_t height,
                                    int64_t width, int64_t rows, bool on_cpu) {
  const std::vector<int64_t>& widths = params.block_out_channels;
  int64_t most = 0;  // Numbers of a row.
  int64_t in = widths.back();
  for (size_t level = 0; level < widths.size(); ++level) {
    const int64_t out = widths[widths.size() - 1 - level];
    const int64_t pixels = (height << level) * (width << level);
    // A block's input, and what a convolution reads and writes: its first one, or its second.
    most = std::max(most, pixels * std::max(2 * in + out, in + 2 * out));
    most = std::max(most, pixels * 3 * out);  // The blocks behind it.
    in = out;
  }
  const int64_t at_once = std::min(rows, on_cpu ? 1 : kRowsOnGpu);
  return static_cast<uint64_t>(at_once * most) * sizeof(float);
}

Shapes AutoencoderKlShapes(const AutoencoderKlParams& params, AutoencoderPart part) {
  Binding bind;
  const Autoencoder shape_only(bind, params, part);
  return bind.shapes();
}

absl::StatusOr<std::unique_ptr<AutoencoderKl>> MakeAutoencoderKl(const AutoencoderKlParams& params,
                                                                 const NamedTensors& tensors,
                                                                 AutoencoderPart part) {
  Binding bind(tensors, /*adapter=*/nullptr);
  auto model = std::make_unique<Autoencoder>(bind, params, part);
  OXBOW_RETURN_IF_ERROR(Annotate(bind.Finish(), "AutoencoderKL"));
  return model;
}

}  // namespace oxbow::model
