#include "core/model/image_decoder.h"

#include <ATen/ATen.h>

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
  return bytes.permute({0, 3, 2, 4, 1}).flatten(2, 3).contiguous();
}

std::unique_ptr<ImageDecoder> MakePixelDecoder() { return std::make_unique<PixelDecoder>(); }

absl::StatusOr<std::unique_ptr<ImageDecoder>> MakeImageDecoder(
    const std::string& autoencoder_config_json, const NamedTensors& tensors) {
  if (autoencoder_config_json.empty()) return MakePixelDecoder();
  OXBOW_ASSIGN_OR_RETURN(const auto architecture, ReadDecoder(autoencoder_config_json));
  return architecture->Make(tensors);
}

}  // namespace oxbow::model
