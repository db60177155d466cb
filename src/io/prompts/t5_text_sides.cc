// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/reward/html_text.h"
#include "io/prompts/text_parts.h"
#include "io/prompts/text_sides.h"

namespace oxbow::io {
namespace {

constexpr UChar32 kFirstWide = 0xff01, kLastWide = 0xffef, kWideSpace = 0x3000;

// ftfy's ligatures: NFKC of all of them, but for one that keeps its long s.
bool IsLigature(UChar32 c) {
  return c == 0x132 || c == 0x133 || c == 0x149 || (c >= 0x1c4 && c <= 0x1cc) ||
         (c >= 0x1f1 && c <= 0x1f3) || (c >= 0xfb00 && c <= 0xfb06);
}

bool IsControl(UChar32 c) {
  return c < 0x09 || c == 0x0b || (c >= 0x0e && c <= 0x1f) || c == 0x7f ||
         (c >= 0x206a && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffc);
}

// Python's str.isspace().
bool IsSpace(UChar32 c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

// A character as ftfy leaves it.
icu::UnicodeString Plain(UChar32 c) {
  static constexpr UChar32 kLongSAndT = 0xfb05, kModifierApostrophe = 0x2bc;
  if (c == kModifierApostrophe || (c >= 0x2018 && c <= 0x201b)) return {UChar32{'\''}};
  if (c >= 0x201c && c <= 0x201f) return {UChar32{'"'}};
  if (c == 0x149) return {"'n"};
  if (c == kLongSAndT) return icu::UnicodeString(UChar32{0x17f}).append(UChar32{'t'});
  if (c == kWideSpace) return {UChar32{' '}};
  if (!IsLigature(c) && (c < kFirstWide || c > kLastWide)) return {c};
  return InForm(icu::Normalizer2::getNFKCInstance, icu::UnicodeString(c));
}

icu::UnicodeString Repaired(const icu::UnicodeString& text) {
  icu::UnicodeString plain;
  for (int32_t i = 0; i < text.length(); i = text.moveIndex32(i, 1)) {
    const UChar32 c = text.char32At(i);
    if (!IsControl(c)) plain += Plain(c);
  }
  return InForm(icu::Normalizer2::getNFCInstance, plain);
}

constexpr int64_t kWidth = 4096;  // T5's by diffusers' defaults, where a config says none.

class Flux final : public LoadedOnDemand {
 public:
  Flux(const ClipSide& clip, const T5Side& t5, const DiffusersComponents& components,
       const Options& options)
      : LoadedOnDemand({{clip.encoder, {{"pooled", model::kClipPooled}}},
                        {t5.encoder, {{"hidden", model::kT5Tokens}}}},
                       {{model::kClipPooled, {1, clip.pooled_width()}},
                        {model::kT5Tokens, {1, options.t5_length, t5.width()}}},
                       components, absl::StrCat("flux, T5 tokens ", options.t5_length), options),
        clip_(clip.tokenizer),
        clip_length_(clip.length()),
        t5_(t5.tokenizer) {}

  model::Conditioning Compose(const model::EncodedText& text) const override {
    return model::ComposeFlux(text);
  }

 private:
  std::vector<model::TokenIds> Ids(const std::vector<std::string>& texts) const override {
    return {{IdsOf(clip_, texts, clip_length_), {}}, {IdsOf(t5_, texts, options_.t5_length), {}}};
  }

  const ClipTokenizer clip_;
  const int64_t clip_length_;
  const T5Tokenizer t5_;
};

// T5 alone sees padding; the transformer takes a mask by which it does not.
class Ltx final : public LoadedOnDemand {
 public:
  Ltx(const T5Side& t5, const DiffusersComponents& components, const Options& options)
      : LoadedOnDemand({{t5.encoder, {{"hidden", model::kT5Tokens}}}},
                       {{model::kT5Tokens, {1, options.t5_length, t5.width()}},
                        {model::kT5Mask, {1, options.t5_length}}},
                       components, absl::StrCat("ltx, T5 tokens ", options.t5_length), options),
        t5_(t5.tokenizer) {}

  model::Conditioning Compose(const model::EncodedText& text) const override {
    return model::ComposeLtx(text);
  }

 private:
  std::vector<model::TokenIds> Ids(const std::vector<std::string>& texts) const override {
    return {{IdsOf(t5_, texts, options_.t5_length), {}}};
  }
  void Complete(const std::vector<model::TokenIds>& ids, model::EncodedText& text) const override {
    text[model::kT5Mask] = MaskOf(ids[0].ids, t5_).to(at::kFloat);
  }

  const T5Tokenizer t5_;
};

class Wan final : public LoadedOnDemand {
 public:
  Wan(const T5Side& t5, const DiffusersComponents& components, const Options& options)
      : LoadedOnDemand({{t5.encoder, {{"hidden", model::kT5Tokens}}}},
                       {{model::kT5Tokens, {1, options.t5_length, t5.width()}}}, components,
                       absl::StrCat("wan, T5 tokens ", options.t5_length), options),
        t5_(t5.tokenizer) {}

  model::Conditioning Compose(const model::EncodedText& text) const override {
    return model::ComposeWan(text);
  }

 private:
  std::vector<model::TokenIds> Ids(const std::vector<std::string>& texts) const override {
    std::vector<std::string> cleaned = texts;
    for (std::string& text : cleaned) text = CleanedPrompt(text);
    const at::Tensor ids = IdsOf(t5_, cleaned, options_.t5_length);
    return {{ids, MaskOf(ids, t5_)}};
  }
  void Complete(const std::vector<model::TokenIds>& ids, model::EncodedText& text) const override {
    const at::Tensor hidden = ids[0].mask.logical_not().unsqueeze(-1);
    text[model::kT5Tokens] = text[model::kT5Tokens].masked_fill(hidden, 0.0);
  }

  const T5Tokenizer t5_;
};

}  // namespace

std::string CleanedPrompt(std::string_view text) {
  const std::string repaired = Utf8(Repaired(Utf16(text)));
  const icu::UnicodeString read = Utf16(reward::UnescapeHtml(reward::UnescapeHtml(repaired)));
  icu::UnicodeString clean;
  bool space = false;
  for (int32_t i = 0; i < read.length(); i = read.moveIndex32(i, 1)) {
    const UChar32 c = read.char32At(i);
    if (IsSpace(c)) {
      space = true;
      continue;
    }
    if (space && !clean.isEmpty()) clean += UChar32{' '};
    space = false;
    clean += c;
  }
  return Utf8(clean);
}

absl::StatusOr<std::unique_ptr<TextEncoders>> OpenFluxTextSide(
    const DiffusersComponents& components, const TextEncoders::Options& options) {
  OXBOW_ASSIGN_OR_RETURN(ClipSide clip, OpenClip(components, ""));
  OXBOW_ASSIGN_OR_RETURN(T5Side t5, OpenT5(components, "_2"));
  return std::make_unique<Flux>(clip, t5, components, options);
}

absl::StatusOr<std::unique_ptr<TextEncoders>> OpenLtxTextSide(
    const DiffusersComponents& components, const TextEncoders::Options& options) {
  OXBOW_ASSIGN_OR_RETURN(T5Side t5, OpenT5(components, ""));
  OXBOW_RETURN_IF_ERROR(CheckT5Width(t5, components.at("transformer"), "caption_channels", kWidth));
  return std::make_unique<Ltx>(t5, components, options);
}

absl::StatusOr<std::unique_ptr<TextEncoders>> OpenWanTextSide(
    const DiffusersComponents& components, const TextEncoders::Options& options) {
  OXBOW_ASSIGN_OR_RETURN(T5Side t5, OpenT5(components, ""));
  OXBOW_RETURN_IF_ERROR(CheckT5Width(t5, components.at("transformer"), "text_dim", kWidth));
  return std::make_unique<Wan>(t5, components, options);
}

absl::StatusOr<int64_t> T5PromptTokens(const DiffusersComponents&, int64_t t5_length) {
  return t5_length;
}

absl::StatusOr<TokenCounter> FluxTokenCounter(const DiffusersComponents& components,
                                              int64_t t5_length) {
  OXBOW_ASSIGN_OR_RETURN(T5Side t5, OpenT5(components, "_2"));
  return CounterOf(std::move(t5), t5_length);
}

absl::StatusOr<TokenCounter> LtxTokenCounter(const DiffusersComponents& components,
                                             int64_t t5_length) {
  OXBOW_ASSIGN_OR_RETURN(T5Side t5, OpenT5(components, ""));
  return CounterOf(std::move(t5), t5_length);
}

absl::StatusOr<TokenCounter> WanTokenCounter(const DiffusersComponents& components,
                                             int64_t t5_length) {
  OXBOW_ASSIGN_OR_RETURN(TokenCounter counter, LtxTokenCounter(components, t5_length));
  counter.count = [count = std::move(counter.count)](const std::string& text) {
    return count(CleanedPrompt(text));
  };
  return counter;
}

}  // namespace oxbow::io
