#include "core/model/text_conditioning.h"

#include <ATen/ATen.h>

#include "base/check.h"

namespace oxbow::model {
namespace {

class SingleClip final : public TextConditioning {
 public:
  explicit SingleClip(std::unique_ptr<ClipTextEncoder> encoder) : encoder_(std::move(encoder)) {}
  Conditioning Compose(const std::vector<at::Tensor>& ids) const override {
    OXBOW_CHECK(ids.size() == 1) << ids.size() << " token sequences for one encoder";
    const ClipTextOutput text = encoder_->Encode(ids[0]);
    return {.tokens = text.penultimate, .pooled = text.pooled};
  }

 private:
  const std::unique_ptr<ClipTextEncoder> encoder_;
};

}  // namespace

std::unique_ptr<TextConditioning> MakeSingleClipConditioning(
    std::unique_ptr<ClipTextEncoder> encoder) {
  return std::make_unique<SingleClip>(std::move(encoder));
}

}  // namespace oxbow::model
