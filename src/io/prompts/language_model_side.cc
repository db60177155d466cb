// SPDX-License-Identifier: Apache-2.0
// Pipelines whose prompts a language model reads: Qwen-Image, Z-Image, FLUX.2 and FLUX.2 klein.
#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "io/bpe_tokenizer.h"
#include "io/prompts/text_parts.h"
#include "io/prompts/text_sides.h"

namespace oxbow::io {
namespace {

// How a pipeline of diffusers shows prompts to its language model, and what its transformer takes.
struct Reading {
  const char* encoder;  // Its class says which pipeline it is.
  const char* name;
  bool begins = false;  // The text begins with the tokenizer's bos_token.
  const char* before;   // In front of a prompt and behind it, as the chat template has it.
  const char* behind;
  const char* taken_out;                    // Removed from a prompt; "": nothing.
  std::vector<const char*> template_marks;  // In the chat template; none: the pipeline uses none.
  int64_t dropped;                          // Tokens in front that the transformer never sees.
  bool masked;        // It takes the text's tokens, 0 behind them, and a mask.
  const char* width;  // The key of its config.
  int64_t layers;     // So many of the language model, side by side in a token.
};

const Reading kReadings[] = {
    // pipeline_qwenimage.py, _get_qwen_prompt_embeds
    {.encoder = "Qwen2_5_VLForConditionalGeneration",
     .name = "qwen_image",
     .before = "<|im_start|>system\nDescribe the image by detailing the color, shape, size, "
               "texture, quantity, text, spatial relationships of the objects and "
               "background:<|im_end|>\n<|im_start|>user\n",
     .behind = "<|im_end|>\n<|im_start|>assistant\n",
     .taken_out = "",
     .template_marks = {},
     .dropped = 34,
     .masked = true,
     .width = "joint_attention_dim",
     .layers = 1},
    // pipeline_z_image.py, _encode_prompt: Qwen3's template with thinking
    {.encoder = "Qwen3Model",
     .name = "z_image",
     .before = "<|im_start|>user\n",
     .behind = "<|im_end|>\n<|im_start|>assistant\n",
     .taken_out = "",
     .template_marks = {"<|im_start|>", "<|im_end|>"},
     .dropped = 0,
     .masked = true,
     .width = "cap_feat_dim",
     .layers = 1},
    // pipeline_flux2_klein.py, _get_qwen3_prompt_embeds: Qwen3's template without thinking
    {.encoder = "Qwen3ForCausalLM",
     .name = "flux2_klein",
     .before = "<|im_start|>user\n",
     .behind = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
     .taken_out = "",
     .template_marks = {"<|im_start|>", "<|im_end|>", "enable_thinking"},
     .dropped = 0,
     .masked = false,
     .width = "joint_attention_dim",
     .layers = 3},
    // pipeline_flux2.py, format_input and _get_mistral_3_small_prompt_embeds; system_messages.py
    {.encoder = "Mistral3ForConditionalGeneration",
     .name = "flux2",
     .begins = true,
     .before = "[SYSTEM_PROMPT]You are an AI that reasons about image descriptions. You give "
               "structured responses focusing on object relationships, object\nattribution and "
               "actions without speculation.[/SYSTEM_PROMPT][INST]",
     .behind = "[/INST]",
     .taken_out = "[IMG]",
     .template_marks = {"[SYSTEM_PROMPT]", "[INST]"},
     .dropped = 0,
     .masked = false,
     .width = "joint_attention_dim",
     .layers = 3}};

// The config of a language model with the keys of transformers' text models on top, whichever
// version wrote it.
DiffusersComponent OfText(DiffusersComponent encoder) {
  const nlohmann::json config = ParseJson(encoder.config_json);
  const nlohmann::json& part = MemberOf(config, "text_config");
  nlohmann::json text = part.is_object() ? part : config;
  if (!text.is_object()) return encoder;
  const nlohmann::json& given = MemberOf(text, "rope_parameters");
  const nlohmann::json rope = given.is_object() ? given : MemberOf(text, "rope_scaling");
  if (const auto& theta = MemberOf(rope, "rope_theta"); theta.is_number())
    text["rope_theta"] = theta;
  const std::string type = TextIn(rope, rope.contains("rope_type") ? "rope_type" : "type");
  text["rope_type"] = type.empty() || type == "mrope" ? "default" : type;
  encoder.config_json = JsonText(text);
  return encoder;
}

struct LanguageModelSide {
  const Reading* reading;
  EncoderFiles encoder;
  BpeTokenizer tokenizer;

  std::vector<int64_t> IdsOf(const std::string& prompt) const {
    const std::string begin = reading->begins ? tokenizer.Named("bos_token") : "";
    return tokenizer.Ids(absl::StrCat(begin, reading->before,
                                      absl::StrReplaceAll(prompt, {{reading->taken_out, ""}}),
                                      reading->behind));
  }
  int64_t width() const { return reading->layers * encoder.Size("hidden_size"); }
};

absl::Status CheckTemplate(const LanguageModelSide& side, const std::filesystem::path& tokenizer) {
  for (const char* mark : side.reading->template_marks) {
    if (absl::StrContains(side.tokenizer.chat_template(), mark)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the chat template of ", side.reading->name, " has ", mark,
                     ", that of this tokenizer has not: ", tokenizer.string()));
  }
  return absl::OkStatus();
}

absl::Status CheckFits(const LanguageModelSide& side, const DiffusersComponents& components) {
  const DiffusersComponent& transformer = components.at("transformer");
  const auto config = ParseJson(transformer.config_json);
  if (MemberOf(config, side.reading->width) != side.width()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "text_encoder gives ", side.width(), " numbers for a token, but the transformer's ",
        side.reading->width, " is ", JsonText(MemberOf(config, side.reading->width))));
  }
  const int64_t words = side.encoder.Size("vocab_size");
  if (side.tokenizer.size() <= words) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      components.at("tokenizer").directory.string(), " gives ids up to ", side.tokenizer.size() - 1,
      ", but ", side.encoder.component.directory.string(), " embeds ", words,
      ": they are of different models, or the tokenizer was extended"));
}

absl::StatusOr<LanguageModelSide> OpenSide(const DiffusersComponents& components) {
  const DiffusersComponent& language_model = components.at("text_encoder");
  const auto* const reading =
      std::find_if(std::begin(kReadings), std::end(kReadings),
                   [&](const Reading& one) { return one.encoder == language_model.class_name; });
  if (reading == std::end(kReadings)) {
    return absl::FailedPreconditionError("no pipeline's prompts are read by a " +
                                         language_model.class_name);
  }
  const auto& directory = components.at("tokenizer").directory;
  OXBOW_ASSIGN_OR_RETURN(EncoderFiles encoder, OpenEncoder(OfText(language_model)));
  OXBOW_ASSIGN_OR_RETURN(BpeTokenizer tokenizer, BpeTokenizer::Load(directory));
  LanguageModelSide side{reading, std::move(encoder), std::move(tokenizer)};
  OXBOW_RETURN_IF_ERROR(CheckTemplate(side, directory));
  OXBOW_RETURN_IF_ERROR(CheckFits(side, components));
  return side;
}

class ReadByLanguageModel final : public LoadedOnDemand {
 public:
  ReadByLanguageModel(LanguageModelSide side, const DiffusersComponents& components,
                      const Options& options)
      : LoadedOnDemand({{side.encoder, {{"tokens", model::kPromptTokens}}}},
                       ShapesOf(side, options.t5_length), components,
                       absl::StrCat(side.reading->name, ", tokens ", options.t5_length), options),
        side_(std::move(side)) {}

  model::Conditioning Compose(const model::EncodedText& text) const override { return text; }

 private:
  static model::Shapes ShapesOf(const LanguageModelSide& side, int64_t tokens) {
    model::Shapes shapes = {{model::kPromptTokens, {1, tokens, side.width()}}};
    if (side.reading->masked) shapes[model::kPromptMask] = {1, tokens};
    return shapes;
  }

  // Padded to one length whatever the texts are: a row has the same bits among others.
  std::vector<model::TokenIds> Ids(const std::vector<std::string>& texts) const override {
    const auto rows = static_cast<int64_t>(texts.size());
    const int64_t length = side_.reading->dropped + options_.t5_length;
    const at::Tensor ids = at::full({rows, length}, side_.tokenizer.pad_id(), at::kLong);
    const at::Tensor mask = at::zeros({rows, length}, at::kBool);
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<int64_t> read = side_.IdsOf(texts[static_cast<size_t>(row)]);
      const int64_t count = std::min(length, static_cast<int64_t>(read.size()));
      const int64_t begin = side_.tokenizer.pads_left() ? length - count : 0;
      std::copy_n(read.begin(), count, ids.mutable_data_ptr<int64_t>() + row * length + begin);
      mask[row].narrow(0, begin, count).fill_(true);
    }
    return {{ids, mask}};
  }

  // The text's tokens from the left, 0 behind them.
  void Complete(const std::vector<model::TokenIds>& ids, model::EncodedText& text) const override {
    if (!side_.reading->masked) return;
    const at::Tensor read = text.at(model::kPromptTokens), there = ids.front().mask;
    const int64_t tokens = options_.t5_length;
    at::Tensor filled = at::zeros({read.size(0), tokens, read.size(2)});
    at::Tensor mask = at::zeros({read.size(0), tokens});
    for (int64_t row = 0; row < read.size(0); ++row) {
      const at::Tensor words = read[row].index({there[row]}).slice(0, side_.reading->dropped);
      filled[row].narrow(0, 0, words.size(0)).copy_(words);
      mask[row].narrow(0, 0, words.size(0)).fill_(1);
    }
    text[model::kPromptTokens] = filled;
    text[model::kPromptMask] = mask;
  }

  const LanguageModelSide side_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TextEncoders>> OpenLanguageModelTextSide(
    const DiffusersComponents& components, const TextEncoders::Options& options) {
  OXBOW_ASSIGN_OR_RETURN(LanguageModelSide side, OpenSide(components));
  const auto frame = static_cast<int64_t>(side.IdsOf("").size()) - side.reading->dropped;
  if (!side.reading->masked && frame >= options.t5_length) {
    return absl::FailedPreconditionError(
        absl::StrCat("prompts.t5_length ", options.t5_length, ": nothing of a prompt is left, ",
                     "because the pipeline's own words are ", frame, " tokens"));
  }
  return std::make_unique<ReadByLanguageModel>(std::move(side), components, options);
}

absl::StatusOr<TokenCounter> LanguageModelTokenCounter(const DiffusersComponents& components,
                                                       int64_t t5_length) {
  OXBOW_ASSIGN_OR_RETURN(LanguageModelSide side, OpenSide(components));
  return TokenCounter{.tokens_max = t5_length,
                      .by_t5_length = true,
                      .count = [side = std::move(side)](const std::string& text) {
                        return static_cast<int64_t>(side.IdsOf(text).size()) -
                               side.reading->dropped;
                      }};
}

}  // namespace oxbow::io
