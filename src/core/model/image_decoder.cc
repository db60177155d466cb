#include "core/model/image_decoder.h"

#include <ATen/ATen.h>

namespace oxbow::model {
namespace {

class PixelDecoder final : public ImageDecoder {
 public:
  at::Tensor Decode(const at::Tensor& latents) const override { return ToBytes(latents); }
};

}  // namespace

at::Tensor ToBytes(const at::Tensor& pictures) {
  const at::Tensor unit = (pictures.detach() / 2 + 0.5).clamp(0, 1);
  return (unit * 255).round().to(at::kByte).permute({0, 2, 3, 1}).contiguous();
}

std::unique_ptr<ImageDecoder> MakePixelDecoder() { return std::make_unique<PixelDecoder>(); }

}  // namespace oxbow::model
