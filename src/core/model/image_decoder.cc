// SPDX-License-Identifier: Apache-2.0
#include "core/model/image_decoder.h"

#include <ATen/ATen.h>

#include "base/check.h"
#include "base/status_macros.h"
#include "core/model/decoder_architecture.h"

namespace oxbow::model {
namespace {

class PixelDecoder final : public ImageDecoder {
 public:
  at::Tensor Decode(const at::Tensor& latents) const override { return ToBytes(latents); }
};

}  // namespace

at::Tensor ToBytes(const at::Tensor& images) {
  const at::Tensor unit = (images.detach() / 2 + 0.5).clamp(0, 1);
  const at::Tensor bytes = (unit * 255).round().to(at::kByte);
  if (bytes.dim() == 4) return bytes.permute({0, 2, 3, 1}).contiguous();
  return bytes.permute({0, 2, 3, 4, 1}).contiguous();
}

std::vector<Image8> FramesOf(const at::Tensor& decoded, int64_t index) {
  OXBOW_CHECK(decoded.scalar_type() == at::kByte && (decoded.dim() == 4 || decoded.dim() == 5))
      << "decoded samples [B, H, W, C] or [B, F, H, W, C]";
  const at::Tensor sample = decoded[index].contiguous();
  const int64_t first = sample.dim() - 3;
  const int64_t count = first == 1 ? sample.size(0) : 1;
  const int64_t bytes = sample.numel() / count;
  const uint8_t* pixels = sample.const_data_ptr<uint8_t>();
  std::vector<Image8> frames;
  for (int64_t i = 0; i < count; ++i, pixels += bytes) {
    frames.push_back({.width = static_cast<int>(sample.size(first + 1)),
                      .height = static_cast<int>(sample.size(first)),
                      .channels = static_cast<int>(sample.size(first + 2)),
                      .pixels = {pixels, pixels + bytes}});
  }
  return frames;
}

std::vector<std::vector<Image8>> DecodeFrames(const ImageDecoder& decoder,
                                              const at::Tensor& latents) {
  const int64_t rows = latents.size(0);
  const int64_t at_once = latents.dim() == 5 ? 1 : rows;
  std::vector<std::vector<Image8>> samples;
  for (int64_t row = 0; row < rows; row += at_once) {
    const at::Tensor decoded = decoder.Decode(latents.narrow(0, row, at_once));
    for (int64_t i = 0; i < at_once; ++i) samples.push_back(FramesOf(decoded, i));
  }
  return samples;
}

std::unique_ptr<ImageDecoder> MakePixelDecoder() { return std::make_unique<PixelDecoder>(); }

absl::StatusOr<std::unique_ptr<ImageDecoder>> MakeImageDecoder(
    const std::string& autoencoder_config_json, const std::string& graph_json,
    const NamedTensors& tensors) {
  if (autoencoder_config_json.empty()) return MakePixelDecoder();
  OXBOW_ASSIGN_OR_RETURN(const auto architecture, ReadDecoder(autoencoder_config_json, graph_json));
  return architecture->Make(tensors);
}

}  // namespace oxbow::model
