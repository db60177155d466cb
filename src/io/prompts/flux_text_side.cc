// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "io/prompts/text_parts.h"
#include "io/prompts/text_sides.h"

namespace oxbow::io {
namespace {

class Flux final : public LoadedOnDemand {
 public:
  static absl::StatusOr<std::unique_ptr<TextEncoders>> Open(const DiffusersComponents& components,
                                                            const Options& options) {
    OXBOW_ASSIGN_OR_RETURN(ClipSide clip, OpenClip(components, ""));
    OXBOW_ASSIGN_OR_RETURN(T5Side t5, OpenT5(components, "_2"));
    return std::unique_ptr<TextEncoders>(
        new Flux(std::move(clip), std::move(t5), components, options));
  }

  model::Conditioning Compose(const model::EncodedText& text) const override {
    return model::ComposeFlux(text);
  }

 private:
  Flux(ClipSide clip, T5Side t5, const DiffusersComponents& components, const Options& options)
      : LoadedOnDemand({{model::kClipPooled, {1, clip.params.pooled_width()}},
                        {model::kT5Tokens, {1, options.t5_length, t5.params.d_model}}},
                       components,
                       absl::StrCat("flux, T5 tokens ", options.t5_length, TypeInIdentity(options)),
                       options),
        clip_(std::move(clip)),
        t5_(std::move(t5)),
        t5_length_(options.t5_length) {}

  absl::StatusOr<std::unique_ptr<model::TextConditioning>> Load() const override {
    OXBOW_ASSIGN_OR_RETURN(auto clip, LoadClip(clip_, options_));
    OXBOW_ASSIGN_OR_RETURN(auto t5, LoadT5(t5_, options_));
    return model::MakeFluxTextConditioning(std::move(clip), std::move(t5));
  }
  std::vector<at::Tensor> Ids(const std::vector<std::string>& texts) const override {
    return {IdsOf(clip_.tokenizer, texts, clip_.length()), IdsOf(t5_.tokenizer, texts, t5_length_)};
  }

  const ClipSide clip_;
  const T5Side t5_;
  const int64_t t5_length_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TextEncoders>> OpenFluxTextSide(
    const DiffusersComponents& components, const TextEncoders::Options& options) {
  return Flux::Open(components, options);
}

absl::StatusOr<int64_t> FluxPromptTokens(const DiffusersComponents&, int64_t t5_length) {
  return t5_length;
}

absl::StatusOr<TokenCounter> FluxTokenCounter(const DiffusersComponents& components,
                                              int64_t t5_length) {
  OXBOW_ASSIGN_OR_RETURN(T5Side t5, OpenT5(components, "_2"));
  return CounterOf(std::move(t5), t5_length);
}

}  // namespace oxbow::io
