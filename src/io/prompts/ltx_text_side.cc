// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "io/prompts/text_parts.h"
#include "io/prompts/text_sides.h"

namespace oxbow::io {
namespace {

constexpr int64_t kCaptionChannels = 4096;  // diffusers' default.

class Ltx final : public LoadedOnDemand {
 public:
  static absl::StatusOr<std::unique_ptr<TextEncoders>> Open(const DiffusersComponents& components,
                                                            const Options& options) {
    OXBOW_ASSIGN_OR_RETURN(T5Side t5, OpenT5(components, ""));
    OXBOW_RETURN_IF_ERROR(
        CheckT5Width(t5, components.at("transformer"), "caption_channels", kCaptionChannels));
    return std::unique_ptr<TextEncoders>(new Ltx(std::move(t5), components, options));
  }

  model::Conditioning Compose(const model::EncodedText& text) const override {
    return model::ComposeLtx(text);
  }

 private:
  Ltx(T5Side t5, const DiffusersComponents& components, const Options& options)
      : LoadedOnDemand({{model::kT5Tokens, {1, options.t5_length, t5.params.d_model}},
                        {model::kT5Mask, {1, options.t5_length}}},
                       components,
                       absl::StrCat("ltx, T5 tokens ", options.t5_length, TypeInIdentity(options)),
                       options),
        t5_(std::move(t5)),
        t5_length_(options.t5_length) {}

  absl::StatusOr<std::unique_ptr<model::TextConditioning>> Load() const override {
    OXBOW_ASSIGN_OR_RETURN(auto t5, LoadT5(t5_, options_));
    return model::MakeLtxTextConditioning(std::move(t5));
  }
  std::vector<at::Tensor> Ids(const std::vector<std::string>& texts) const override {
    const at::Tensor ids = IdsOf(t5_.tokenizer, texts, t5_length_);
    return {ids, MaskOf(ids, t5_.tokenizer)};
  }

  const T5Side t5_;
  const int64_t t5_length_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TextEncoders>> OpenLtxTextSide(
    const DiffusersComponents& components, const TextEncoders::Options& options) {
  return Ltx::Open(components, options);
}

absl::StatusOr<int64_t> LtxPromptTokens(const DiffusersComponents&, int64_t t5_length) {
  return t5_length;
}

absl::StatusOr<TokenCounter> LtxTokenCounter(const DiffusersComponents& components,
                                             int64_t t5_length) {
  OXBOW_ASSIGN_OR_RETURN(T5Side t5, OpenT5(components, ""));
  return CounterOf(std::move(t5), t5_length);
}

}  // namespace oxbow::io
