// SPDX-License-Identifier: Apache-2.0
#include "core/model/text_conditioning.h"

#include <ATen/ATen.h>

#include "base/check.h"

namespace oxbow::model {
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

}  // namespace oxbow::model
