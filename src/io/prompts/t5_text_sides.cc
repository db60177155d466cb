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
  Flux(ClipSide clip, T5Side t5, const DiffusersComponents& components, const Options& options)
      : LoadedOnDemand({{model::kClipPooled, {1, clip.params.pooled_width()}},
                        {model::kT5Tokens, {1, options.t5_length, t5.params.d_model}}},
                       components, absl::StrCat("flux, T5 tokens ", options.t5_length), options),
        clip_(std::move(clip)),
        t5_(std::move(t5)) {}

  model::Conditioning Compose(const model::EncodedText& text) const override {
    return model::ComposeFlux(text);
  }

 private:
  absl::StatusOr<std::unique_ptr<model::TextConditioning>> Load() const override {
    OXBOW_ASSIGN_OR_RETURN(auto clip, LoadClip(clip_, options_));
    OXBOW_ASSIGN_OR_RETURN(auto t5, LoadT5(t5_, options_));
    return model::MakeFluxTextConditioning(std::move(clip), std::move(t5));
  }
  std::vector<at::Tensor> Ids(const std::vector<std::string>& texts) const override {
    return {IdsOf(clip_.tokenizer, texts, clip_.length()),
            IdsOf(t5_.tokenizer, texts, options_.t5_length)};
  }

  const ClipSide clip_;
  const T5Side t5_;
};

// A way of using T5 alone.
struct T5Way {
  const char* name;
  bool cleans;  // The tokenizer sees a cleaned prompt.
  bool masks;   // The transformer takes the mask.
  model::Conditioning (*compose)(const model::EncodedText& text);
  std::unique_ptr<model::TextConditioning> (*make)(std::unique_ptr<model::T5Encoder> t5);
};
constexpr T5Way kLtx{"ltx", false, true, model::ComposeLtx, model::MakeLtxTextConditioning};
constexpr T5Way kWan{"wan", true, false, model::ComposeWan, model::MakeWanTextConditioning};

model::Shapes ShapesBy(const T5Way& way, const T5Side& t5, int64_t length) {
  model::Shapes shapes = {{model::kT5Tokens, {1, length, t5.params.d_model}}};
  if (way.masks) shapes[model::kT5Mask] = {1, length};
  return shapes;
}

class T5Alone final : public LoadedOnDemand {
 public:
  T5Alone(const T5Way& way, T5Side t5, const DiffusersComponents& components,
          const Options& options)
      : LoadedOnDemand(ShapesBy(way, t5, options.t5_length), components,
                       absl::StrCat(way.name, ", T5 tokens ", options.t5_length), options),
        way_(way),
        t5_(std::move(t5)) {}

  model::Conditioning Compose(const model::EncodedText& text) const override {
    return way_.compose(text);
  }

 private:
  absl::StatusOr<std::unique_ptr<model::TextConditioning>> Load() const override {
    OXBOW_ASSIGN_OR_RETURN(auto t5, LoadT5(t5_, options_));
    return way_.make(std::move(t5));
  }
  std::vector<at::Tensor> Ids(const std::vector<std::string>& texts) const override {
    std::vector<std::string> seen = texts;
    for (std::string& text : seen) text = way_.cleans ? CleanedPrompt(text) : text;
    const at::Tensor ids = IdsOf(t5_.tokenizer, seen, options_.t5_length);
    return {ids, MaskOf(ids, t5_.tokenizer)};
  }

  const T5Way way_;
  const T5Side t5_;
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
  return std::make_unique<Flux>(std::move(clip), std::move(t5), components, options);
}

absl::StatusOr<std::unique_ptr<TextEncoders>> OpenLtxTextSide(
    const DiffusersComponents& components, const TextEncoders::Options& options) {
  OXBOW_ASSIGN_OR_RETURN(T5Side t5, OpenT5(components, ""));
  OXBOW_RETURN_IF_ERROR(CheckT5Width(t5, components.at("transformer"), "caption_channels", kWidth));
  return std::make_unique<T5Alone>(kLtx, std::move(t5), components, options);
}

absl::StatusOr<std::unique_ptr<TextEncoders>> OpenWanTextSide(
    const DiffusersComponents& components, const TextEncoders::Options& options) {
  OXBOW_ASSIGN_OR_RETURN(T5Side t5, OpenT5(components, ""));
  if (!t5.params.bias_per_block) {
    return absl::FailedPreconditionError(
        absl::StrCat((t5.component.directory / "config.json").string(),
                     ": model_type is not umt5: a Wan takes UMT5, which has a bias per block"));
  }
  OXBOW_RETURN_IF_ERROR(CheckT5Width(t5, components.at("transformer"), "text_dim", kWidth));
  return std::make_unique<T5Alone>(kWan, std::move(t5), components, options);
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
