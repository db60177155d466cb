// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "io/prompts/text_parts.h"
#include "io/prompts/text_sides.h"

namespace oxbow::io {
namespace {

using model::EncodedText;

const std::map<std::string, std::string> kFirstClip = {{"penultimate", model::kClipTokens},
                                                       {"pooled", model::kClipPooled}};
const std::map<std::string, std::string> kSecondClip = {{"penultimate", model::kClip2Tokens},
                                                        {"pooled", model::kClip2Pooled}};

class OneClip final : public LoadedOnDemand {
 public:
  OneClip(const ClipSide& clip, const DiffusersComponents& components, const Options& options)
      : LoadedOnDemand({{clip.encoder, kFirstClip}},
                       {{model::kClipTokens, {1, clip.length(), clip.width()}},
                        {model::kClipPooled, {1, clip.pooled_width()}}},
                       components, "one clip", options),
        tokenizer_(clip.tokenizer),
        length_(clip.length()) {}

  model::Conditioning Compose(const EncodedText& text) const override {
    return model::ComposeSingleClip(text);
  }

 private:
  std::vector<model::TokenIds> Ids(const std::vector<std::string>& texts) const override {
    return {{IdsOf(tokenizer_, texts, length_), {}}};
  }

  const ClipTokenizer tokenizer_;
  const int64_t length_;
};

// The parts of SD3's text side, and what they compose to.
struct Sd3Sides {
  ClipSide clip, clip_2;
  std::optional<T5Side> t5;
  int64_t clip_length;  // The first tokenizer's, for both, as in diffusers.
  model::Sd3TextShape shape;
};

absl::Status CheckSd3(const Sd3Sides& sides) {
  const int64_t clips = sides.clip.width() + sides.clip_2.width();
  if (clips > sides.shape.width) {
    return absl::FailedPreconditionError(
        absl::StrCat("text_encoder and text_encoder_2 are together wider than the transformer's "
                     "joint_attention_dim: ",
                     clips, " > ", sides.shape.width));
  }
  if (sides.t5.has_value() && sides.t5->width() != sides.shape.width) {
    return absl::FailedPreconditionError(
        absl::StrCat("text_encoder_3's d_model is not the transformer's joint_attention_dim: ",
                     sides.t5->width(), " != ", sides.shape.width));
  }
  const int64_t positions = sides.clip_2.encoder.Size("max_position_embeddings");
  if (sides.clip_length > positions) {
    return absl::FailedPreconditionError(
        absl::StrCat("text_encoder_2 has fewer positions than tokenizer gives tokens: ", positions,
                     " < ", sides.clip_length));
  }
  return absl::OkStatus();
}

model::Shapes Sd3RowShapes(const Sd3Sides& sides) {
  const ClipSide &first = sides.clip, &second = sides.clip_2;
  model::Shapes shapes = {{model::kClipTokens, {1, sides.clip_length, first.width()}},
                          {model::kClipPooled, {1, first.pooled_width()}},
                          {model::kClip2Tokens, {1, sides.clip_length, second.width()}},
                          {model::kClip2Pooled, {1, second.pooled_width()}}};
  if (sides.t5.has_value()) {
    shapes[model::kT5Tokens] = {1, sides.shape.t5_length, sides.shape.width};
  }
  return shapes;
}

std::vector<EncoderUse> UsesOf(const Sd3Sides& sides) {
  std::vector<EncoderUse> uses = {{sides.clip.encoder, kFirstClip},
                                  {sides.clip_2.encoder, kSecondClip}};
  if (sides.t5.has_value()) uses.push_back({sides.t5->encoder, {{"hidden", model::kT5Tokens}}});
  return uses;
}

// The width of token features that the transformer takes.
absl::StatusOr<int64_t> PromptWidth(const DiffusersComponent& transformer) {
  OXBOW_ASSIGN_OR_RETURN(const NetworkGraph network,
                         FindNetworkGraph(transformer, /*velocity=*/true));
  for (const model::exported::GraphInput& input : network.graph.inputs) {
    if (input.name == model::kPromptTokens) return input.shape.back().size;
  }
  return absl::FailedPreconditionError("the transformer takes no tokens of a prompt: " +
                                       transformer.class_name);
}

class Sd3 final : public LoadedOnDemand {
 public:
  static absl::StatusOr<std::unique_ptr<TextEncoders>> Open(const DiffusersComponents& components,
                                                            const Options& options) {
    OXBOW_ASSIGN_OR_RETURN(ClipSide clip, OpenClip(components, ""));
    OXBOW_ASSIGN_OR_RETURN(ClipSide clip_2, OpenClip(components, "_2"));
    std::optional<T5Side> t5;
    if (components.contains("text_encoder_3")) {
      OXBOW_ASSIGN_OR_RETURN(t5, OpenT5(components, "_3"));
    }
    OXBOW_ASSIGN_OR_RETURN(const int64_t width, PromptWidth(components.at("transformer")));
    const int64_t clip_length = clip.length();
    Sd3Sides sides{.clip = std::move(clip),
                   .clip_2 = std::move(clip_2),
                   .t5 = std::move(t5),
                   .clip_length = clip_length,
                   .shape = {.t5_length = options.t5_length, .width = width}};
    OXBOW_RETURN_IF_ERROR(CheckSd3(sides));
    // Without T5 nothing that is encoded depends on its length.
    const std::string settings =
        absl::StrCat("sd3, T5 tokens ", sides.t5.has_value() ? options.t5_length : 0);
    return std::unique_ptr<TextEncoders>(new Sd3(std::move(sides), components, settings, options));
  }

  model::Conditioning Compose(const EncodedText& text) const override {
    return model::ComposeSd3(text, sides_.shape);
  }

 private:
  Sd3(Sd3Sides sides, const DiffusersComponents& components, const std::string& settings,
      const Options& options)
      : LoadedOnDemand(UsesOf(sides), Sd3RowShapes(sides), components, settings, options),
        sides_(std::move(sides)) {}

  std::vector<model::TokenIds> Ids(const std::vector<std::string>& texts) const override {
    std::vector<model::TokenIds> ids = {
        {IdsOf(sides_.clip.tokenizer, texts, sides_.clip_length), {}},
        {IdsOf(sides_.clip_2.tokenizer, texts, sides_.clip_length), {}}};
    if (sides_.t5.has_value()) {
      ids.push_back({IdsOf(sides_.t5->tokenizer, texts, sides_.shape.t5_length), {}});
    }
    return ids;
  }

  const Sd3Sides sides_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TextEncoders>> OpenSd3TextSide(
    const DiffusersComponents& components, const TextEncoders::Options& options) {
  if (components.contains("text_encoder_2")) return Sd3::Open(components, options);
  if (components.contains("text_encoder_3")) {
    return absl::FailedPreconditionError(
        "model_index.json has text_encoder_3 but no text_encoder_2: a pipeline of one CLIP, or of "
        "two and perhaps T5, is supported");
  }
  OXBOW_ASSIGN_OR_RETURN(ClipSide clip, OpenClip(components, ""));
  return std::make_unique<OneClip>(std::move(clip), components, options);
}

absl::StatusOr<int64_t> Sd3PromptTokens(const DiffusersComponents& components, int64_t t5_length) {
  OXBOW_ASSIGN_OR_RETURN(const NetworkGraph clip, FindNetworkGraph(components.at("text_encoder")));
  return clip.Size("max_position_embeddings") +
         (components.contains("text_encoder_3") ? t5_length : 0);
}

absl::StatusOr<TokenCounter> Sd3TokenCounter(const DiffusersComponents& components,
                                             int64_t t5_length) {
  if (components.contains("text_encoder_3")) {
    OXBOW_ASSIGN_OR_RETURN(T5Side t5, OpenT5(components, "_3"));
    return CounterOf(std::move(t5), t5_length);
  }
  OXBOW_ASSIGN_OR_RETURN(ClipSide clip, OpenClip(components, ""));
  return CounterOf(std::move(clip));
}

}  // namespace oxbow::io
