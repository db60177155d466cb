// SPDX-License-Identifier: Apache-2.0
#include "tests/second_architecture/video_transformer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "base/sha256.h"
#include "base/status_macros.h"
#include "core/model/binding.h"
#include "core/model/layers.h"
#include "core/model/velocity_model.h"

namespace oxbow::testing {
namespace {

using model::Conditioning;
using model::ConditioningPart;
using model::kPromptLength;

constexpr char kContext[] = "context";
constexpr char kMask[] = "mask";
constexpr char kScale[] = "guidance_scale";
constexpr int64_t kPatch = 2;
constexpr int64_t kTimeWidth = 256;
constexpr double kTimestepsPerSigma = 1000;
constexpr int64_t kPromptTokensMax = 7;

struct VideoParams {
  int64_t channels = 0, frames = 0, side = 0, width = 0, context_width = 0;
  int64_t patch_numbers() const { return channels * kPatch * kPatch; }
};

// [B, kTimeWidth] of t [B]: cosines, then sines.
at::Tensor TimestepEmbedding(const at::Tensor& t) {
  const int64_t half = kTimeWidth / 2;
  const at::Tensor exponent = at::arange(half, at::kFloat) * (-std::log(1e4) / double(half));
  const at::Tensor angle = t.unsqueeze(1) * at::exp(exponent);
  return at::cat({at::cos(angle), at::sin(angle)}, 1);
}

class VideoTransformer final : public model::VelocityModel {
 public:
  VideoTransformer(model::Binding& bind, const VideoParams& p)
      : params_(p),
        frame_table_(bind.Take(kFrameTable, {p.frames, p.width})),
        patches_(bind.TakeLinear("patches", p.patch_numbers(), p.width)),
        time_(bind.TakeLinear("time", kTimeWidth, p.width)),
        scale_(bind.TakeLinear("scale", 1, p.width)),
        context_(bind.TakeLinear("context", p.context_width, p.width)),
        in_(bind.TakeLinear("mlp.in", p.width, 2 * p.width)),
        out_(bind.TakeLinear("mlp.out", 2 * p.width, p.patch_numbers())) {}

 private:
  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const Conditioning& conditioning) const override {
    const int64_t rows = x.size(0);
    const auto padded = [&](const at::Tensor& input) {
      return model::PadRows(model::BroadcastRows(input, rows));
    };
    const at::Tensor mask = padded(conditioning.at(kMask)).unsqueeze(2);  // [B, S, 1]
    const at::Tensor words = context_(padded(conditioning.at(kContext))) * mask;
    const at::Tensor prompt = words.sum(1) / mask.sum(1).clamp_min(1);  // [B, D]
    const at::Tensor level = time_(TimestepEmbedding(padded(sigma) * kTimestepsPerSigma)) +
                             scale_(padded(conditioning.at(kScale)).unsqueeze(1));
    const at::Tensor all = padded(x);
    const at::Tensor tokens = patches_(Patches(all)) + Frames(all);  // [B, F N, D]
    const at::Tensor hidden =
        at::layer_norm(tokens + (prompt + level).unsqueeze(1), {params_.width}, {}, {}, 1e-6);
    return Video(out_(model::GeluTanh(in_(hidden))), all.sizes()).narrow(0, 0, rows);
  }

  // [B, C, F, H, W] -> [B, F N, C p p], frame by frame.
  at::Tensor Patches(const at::Tensor& x) const {
    const int64_t b = x.size(0), h = x.size(3) / kPatch, w = x.size(4) / kPatch;
    return x.reshape({b, x.size(1), x.size(2), h, kPatch, w, kPatch})
        .permute({0, 2, 3, 5, 1, 4, 6})
        .reshape({b, x.size(2) * h * w, params_.patch_numbers()});
  }

  at::Tensor Frames(const at::Tensor& x) const {
    return frame_table_.repeat_interleave(x.size(3) * x.size(4) / (kPatch * kPatch), 0);
  }

  static at::Tensor Video(const at::Tensor& tokens, at::IntArrayRef shape) {
    const int64_t h = shape[3] / kPatch, w = shape[4] / kPatch;
    return tokens.view({shape[0], shape[2], h, w, shape[1], kPatch, kPatch})
        .permute({0, 4, 1, 2, 5, 3, 6})
        .reshape(shape);
  }

  const VideoParams params_;
  const at::Tensor frame_table_;
  const model::Linear patches_, time_, scale_, context_, in_, out_;
};

class VideoArchitecture final : public model::Architecture {
 public:
  explicit VideoArchitecture(const VideoParams& params)
      : params_(params),
        latent_{.channels = params.channels,
                .frames = params.frames,
                .side = params.side,
                .patch = {.height = kPatch, .width = kPatch},
                .side_max = 8 * kPatch},
        conditioning_{{kContext, {kPromptLength, params.context_width}},
                      {kMask, {kPromptLength}, ConditioningPart::Values::kMask},
                      {kScale, {}}} {}

  const std::string& class_name() const override { return class_name_; }
  const model::LatentGeometry& latent() const override { return latent_; }
  const std::vector<ConditioningPart>& conditioning() const override { return conditioning_; }
  const std::set<std::string>& buffers() const override { return buffers_; }
  model::Shapes shapes() const override { return Recorded().shapes(); }
  model::LinearModules linears() const override { return Recorded().linears(); }

  uint64_t ActivationBytes(const model::Execution&, const model::ForwardSize& size) const override {
    const int64_t tokens = model::TokensOf(latent_, size.latent_shape);
    return static_cast<uint64_t>(4 * size.rows * tokens * params_.width * 8);
  }

  absl::StatusOr<std::unique_ptr<model::VelocityModel>> Make(
      const model::NamedTensors& weights, const model::LoraAdapter* adapter,
      const model::Execution&) const override {
    model::Binding bind(weights, adapter);
    auto network = std::make_unique<VideoTransformer>(bind, params_);
    OXBOW_RETURN_IF_ERROR(bind.Finish());
    return network;
  }

 private:
  model::Binding Recorded() const {
    model::Binding bind;
    const VideoTransformer shape_only(bind, params_);
    return bind;
  }

  const std::string class_name_ = kVideoClassName;
  const VideoParams params_;
  const model::LatentGeometry latent_;
  const std::vector<ConditioningPart> conditioning_;
  const std::set<std::string> buffers_ = {kFrameTable};
};

// A character's features are its code's bits, as +1 and -1.
class VideoTextSide final : public io::TextEncoders {
 public:
  explicit VideoTextSide(int64_t width)
      : width_(width),
        shapes_{{kContext, {1, kPromptTokensMax, width}}, {kMask, {1, kPromptTokensMax}}} {}

  absl::StatusOr<model::EncodedText> Encode(const std::vector<std::string>& texts) override {
    const auto rows = static_cast<int64_t>(texts.size());
    at::Tensor context = at::zeros({rows, kPromptTokensMax, width_}, at::kFloat);
    at::Tensor mask = at::zeros({rows, kPromptTokensMax}, at::kFloat);
    for (int64_t row = 0; row < rows; ++row) {
      const std::string& text = texts[static_cast<size_t>(row)];
      for (int64_t i = 0; i < std::min<int64_t>(std::ssize(text), kPromptTokensMax); ++i) {
        mask[row][i] = 1;
        for (int64_t bit = 0; bit < width_; ++bit) {
          context[row][i][bit] = (text[static_cast<size_t>(i)] >> bit) % 2 != 0 ? 1 : -1;
        }
      }
    }
    return model::EncodedText{{kContext, context}, {kMask, mask}};
  }
  void Release() override {}
  bool loaded() const override { return true; }
  Conditioning Compose(const model::EncodedText& text) const override {
    Conditioning conditioning = text;
    conditioning[kScale] = at::full({text.at(kMask).size(0)}, 3.5, at::kFloat);
    return conditioning;
  }
  const model::Shapes& row_shapes() const override { return shapes_; }
  absl::StatusOr<std::string> Identity() const override { return Sha256Hex("bits of characters"); }

 private:
  const int64_t width_;
  const model::Shapes shapes_;
};

absl::StatusOr<VideoParams> ReadParams(const std::string& config_json) {
  const auto json = nlohmann::json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  VideoParams params;
  for (const auto& [key, value] : {std::pair<const char*, int64_t*>{"channels", &params.channels},
                                   {"frames", &params.frames},
                                   {"side", &params.side},
                                   {"width", &params.width},
                                   {"context_width", &params.context_width}}) {
    if (!json.is_object() || !json.contains(key) || !json[key].is_number_integer()) {
      return absl::InvalidArgumentError(std::string("video config has no number: ") + key);
    }
    *value = json[key].get<int64_t>();
  }
  return params;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const model::Architecture>> ReadVideoArchitecture(
    const std::string& config_json) {
  OXBOW_ASSIGN_OR_RETURN(const VideoParams params, ReadParams(config_json));
  return std::make_shared<const VideoArchitecture>(params);
}

absl::StatusOr<std::unique_ptr<io::TextEncoders>> OpenVideoTextSide(
    const io::DiffusersComponents& components, const io::TextEncoders::Options&) {
  OXBOW_ASSIGN_OR_RETURN(const VideoParams params,
                         ReadParams(components.at("transformer").config_json));
  return std::make_unique<VideoTextSide>(params.context_width);
}

absl::StatusOr<int64_t> VideoPromptTokens(const io::DiffusersComponents&, int64_t) {
  return kPromptTokensMax;
}

}  // namespace oxbow::testing
