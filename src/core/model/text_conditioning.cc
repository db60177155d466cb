// SPDX-License-Identifier: Apache-2.0
#include "core/model/text_conditioning.h"

#include <ATen/ATen.h>

#include "base/check.h"

namespace oxbow::model {
namespace {

class SingleClip final : public TextConditioning {
 public:
  explicit SingleClip(std::unique_ptr<ClipTextEncoder> encoder) : encoder_(std::move(encoder)) {}
  EncodedText Encode(const std::vector<at::Tensor>& ids) const override {
    OXBOW_CHECK(ids.size() == 1) << ids.size() << " token sequences for one encoder";
    const ClipTextOutput text = encoder_->Encode(ids[0]);
    return {{kClipTokens, text.penultimate}, {kClipPooled, text.pooled}};
  }

 private:
  const std::unique_ptr<ClipTextEncoder> encoder_;
};

class Sd3Text final : public TextConditioning {
 public:
  Sd3Text(std::unique_ptr<ClipTextEncoder> clip, std::unique_ptr<ClipTextEncoder> clip_2,
          std::unique_ptr<T5Encoder> t5)
      : clip_(std::move(clip)), clip_2_(std::move(clip_2)), t5_(std::move(t5)) {}

  EncodedText Encode(const std::vector<at::Tensor>& ids) const override {
    OXBOW_CHECK(ids.size() == (t5_ != nullptr ? 3 : 2)) << ids.size() << " token sequences";
    const ClipTextOutput first = clip_->Encode(ids[0]), second = clip_2_->Encode(ids[1]);
    EncodedText text = {{kClipTokens, first.penultimate},
                        {kClipPooled, first.pooled},
                        {kClip2Tokens, second.penultimate},
                        {kClip2Pooled, second.pooled}};
    if (t5_ != nullptr) text[kT5Tokens] = t5_->Encode(ids[2], /*mask=*/{});
    return text;
  }

 private:
  const std::unique_ptr<ClipTextEncoder> clip_, clip_2_;
  const std::unique_ptr<T5Encoder> t5_;
};

class FluxText final : public TextConditioning {
 public:
  FluxText(std::unique_ptr<ClipTextEncoder> clip, std::unique_ptr<T5Encoder> t5)
      : clip_(std::move(clip)), t5_(std::move(t5)) {}

  EncodedText Encode(const std::vector<at::Tensor>& ids) const override {
    OXBOW_CHECK(ids.size() == 2) << ids.size() << " token sequences";
    return {{kClipPooled, clip_->Encode(ids[0]).pooled},
            {kT5Tokens, t5_->Encode(ids[1], /*mask=*/{})}};
  }

 private:
  const std::unique_ptr<ClipTextEncoder> clip_;
  const std::unique_ptr<T5Encoder> t5_;
};

class WanText final : public TextConditioning {
 public:
  explicit WanText(std::unique_ptr<T5Encoder> t5) : t5_(std::move(t5)) {}

  EncodedText Encode(const std::vector<at::Tensor>& ids) const override {
    OXBOW_CHECK(ids.size() == 2) << ids.size() << " tensors for ids and mask";
    const at::Tensor hidden = t5_->Encode(ids[0], ids[1]);
    return {{kT5Tokens, hidden.masked_fill(ids[1].logical_not().unsqueeze(-1), 0.0)}};
  }

 private:
  const std::unique_ptr<T5Encoder> t5_;
};

class LtxText final : public TextConditioning {
 public:
  explicit LtxText(std::unique_ptr<T5Encoder> t5) : t5_(std::move(t5)) {}

  EncodedText Encode(const std::vector<at::Tensor>& ids) const override {
    OXBOW_CHECK(ids.size() == 2) << ids.size() << " tensors for ids and mask";
    return {{kT5Tokens, t5_->Encode(ids[0], /*mask=*/{})}, {kT5Mask, ids[1].to(at::kFloat)}};
  }

 private:
  const std::unique_ptr<T5Encoder> t5_;
};

}  // namespace

Conditioning ComposeSingleClip(const EncodedText& text) {
  return {{kPromptTokens, text.at(kClipTokens)}, {kPooledPrompt, text.at(kClipPooled)}};
}

Conditioning ComposeSd3(const EncodedText& text, const Sd3TextShape& shape) {
  const at::Tensor clips = at::cat({text.at(kClipTokens), text.at(kClip2Tokens)}, -1);
  const int64_t missing = shape.width - clips.size(2);
  OXBOW_CHECK(missing >= 0) << "two CLIPs of together " << clips.size(2) << " channels for "
                            << shape.width;
  const auto t5 = text.find(kT5Tokens);
  const at::Tensor tail = t5 != text.end()
                              ? t5->second.to(at::kFloat)
                              : clips.new_zeros({clips.size(0), shape.t5_length, shape.width});
  OXBOW_CHECK(tail.size(1) == shape.t5_length && tail.size(2) == shape.width)
      << "T5 " << tail.sizes() << " instead of " << shape.t5_length << " x " << shape.width;
  return {{kPromptTokens, at::cat({at::constant_pad_nd(clips, {0, missing}), tail}, 1)},
          {kPooledPrompt, at::cat({text.at(kClipPooled), text.at(kClip2Pooled)}, -1)}};
}

Conditioning ComposeFlux(const EncodedText& text) {
  return {{kPromptTokens, text.at(kT5Tokens).to(at::kFloat)},
          {kPooledPrompt, text.at(kClipPooled)}};
}

Conditioning ComposeWan(const EncodedText& text) {
  return {{kPromptTokens, text.at(kT5Tokens).to(at::kFloat)}};
}

Conditioning ComposeLtx(const EncodedText& text) {
  return {{kPromptTokens, text.at(kT5Tokens).to(at::kFloat)},
          {kPromptMask, text.at(kT5Mask).to(at::kFloat)}};
}

std::unique_ptr<TextConditioning> MakeSingleClipConditioning(
    std::unique_ptr<ClipTextEncoder> encoder) {
  return std::make_unique<SingleClip>(std::move(encoder));
}

std::unique_ptr<TextConditioning> MakeSd3TextConditioning(std::unique_ptr<ClipTextEncoder> clip,
                                                          std::unique_ptr<ClipTextEncoder> clip_2,
                                                          std::unique_ptr<T5Encoder> t5) {
  return std::make_unique<Sd3Text>(std::move(clip), std::move(clip_2), std::move(t5));
}

std::unique_ptr<TextConditioning> MakeFluxTextConditioning(std::unique_ptr<ClipTextEncoder> clip,
                                                           std::unique_ptr<T5Encoder> t5) {
  return std::make_unique<FluxText>(std::move(clip), std::move(t5));
}

std::unique_ptr<TextConditioning> MakeWanTextConditioning(std::unique_ptr<T5Encoder> t5) {
  return std::make_unique<WanText>(std::move(t5));
}

std::unique_ptr<TextConditioning> MakeLtxTextConditioning(std::unique_ptr<T5Encoder> t5) {
  return std::make_unique<LtxText>(std::move(t5));
}

}  // namespace oxbow::model
