// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "io/prompts/text_parts.h"
#include "io/prompts/text_sides.h"

namespace oxbow::io {
namespace {

constexpr int64_t kTextDim = 4096;  // diffusers' default.

absl::Status CheckWan(const T5Side& t5, const DiffusersComponent& transformer) {
  if (!t5.params.bias_per_block) {
    return absl::FailedPreconditionError(
        absl::StrCat((t5.component.directory / "config.json").string(),
                     ": model_type is not umt5: a Wan takes UMT5, which has a bias per block"));
  }
  return CheckT5Width(t5, transformer, "text_dim", kTextDim);
}

class Wan final : public LoadedOnDemand {
 public:
  static absl::StatusOr<std::unique_ptr<TextEncoders>> Open(const DiffusersComponents& components,
                                                            const Options& options) {
    OXBOW_ASSIGN_OR_RETURN(T5Side t5, OpenT5(components, ""));
    OXBOW_RETURN_IF_ERROR(CheckWan(t5, components.at("transformer")));
    return std::unique_ptr<TextEncoders>(new Wan(std::move(t5), components, options));
  }

  model::Conditioning Compose(const model::EncodedText& text) const override {
    return model::ComposeWan(text);
  }

 private:
  Wan(T5Side t5, const DiffusersComponents& components, const Options& options)
      : LoadedOnDemand({{model::kT5Tokens, {1, options.t5_length, t5.params.d_model}}}, components,
                       absl::StrCat("wan, T5 tokens ", options.t5_length, TypeInIdentity(options)),
                       options),
        t5_(std::move(t5)),
        t5_length_(options.t5_length) {}

  absl::StatusOr<std::unique_ptr<model::TextConditioning>> Load() const override {
    OXBOW_ASSIGN_OR_RETURN(auto t5, LoadT5(t5_, options_));
    return model::MakeWanTextConditioning(std::move(t5));
  }
  std::vector<at::Tensor> Ids(const std::vector<std::string>& texts) const override {
    std::vector<std::string> clean;
    clean.reserve(texts.size());
    for (const std::string& text : texts) clean.push_back(CleanedPrompt(text));
    const at::Tensor ids = IdsOf(t5_.tokenizer, clean, t5_length_);
    return {ids, MaskOf(ids, t5_.tokenizer)};
  }

  const T5Side t5_;
  const int64_t t5_length_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TextEncoders>> OpenWanTextSide(
    const DiffusersComponents& components, const TextEncoders::Options& options) {
  return Wan::Open(components, options);
}

absl::StatusOr<int64_t> WanPromptTokens(const DiffusersComponents&, int64_t t5_length) {
  return t5_length;
}

absl::StatusOr<TokenCounter> WanTokenCounter(const DiffusersComponents& components,
                                             int64_t t5_length) {
  OXBOW_ASSIGN_OR_RETURN(T5Side t5, OpenT5(components, ""));
  TokenCounter counter = CounterOf(std::move(t5), t5_length);
  counter.count = [count = std::move(counter.count)](const std::string& text) {
    return count(CleanedPrompt(text));
  };
  return counter;
}

}  // namespace oxbow::io
