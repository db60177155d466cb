// SPDX-License-Identifier: Apache-2.0
#include "io/prompts/text_parts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "io/prompts/prompt_store.h"

namespace oxbow::io {
namespace {

using model::NamedTensors;

constexpr char kWithoutProjection[] = "CLIPTextModel";

std::string GraphsOf(const std::vector<EncoderUse>& uses) {
  std::string graphs;
  for (const EncoderUse& use : uses) {
    absl::StrAppend(&graphs, ", ", Sha256Hex(use.encoder.network.json));
  }
  return graphs;
}

absl::Status CheckVocabulary(const DiffusersComponent& tokenizer, int64_t ids,
                             const DiffusersComponent& encoder, int64_t vocabulary) {
  if (ids <= vocabulary) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(tokenizer.directory.string(), " gives ids up to ", ids - 1, ", but ",
                   encoder.directory.string(), " embeds ", vocabulary,
                   ": they are of different models, or the tokenizer was extended"));
}

// The tokenizer of an encoder, whose ids all have a row in the encoder's table.
template <typename Tokenizer>
absl::StatusOr<Tokenizer> OpenTokenizer(const DiffusersComponents& components,
                                        const std::string& suffix, const EncoderFiles& encoder) {
  const auto words = components.find("tokenizer" + suffix);
  if (words == components.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("model_index.json has text_encoder", suffix, " but no tokenizer", suffix));
  }
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Load(words->second.directory);
  if (!tokenizer.ok()) return tokenizer;
  OXBOW_RETURN_IF_ERROR(CheckVocabulary(words->second, tokenizer->size(), encoder.component,
                                        encoder.Size("vocab_size")));
  return tokenizer;
}

}  // namespace

int64_t ClipSide::length() const {
  return std::min(encoder.Size("max_position_embeddings"), tokenizer.model_max_length());
}

int64_t ClipSide::pooled_width() const {
  return encoder.component.class_name == kWithoutProjection ? width()
                                                            : encoder.Size("projection_dim");
}

absl::StatusOr<ClipSide> OpenClip(const DiffusersComponents& components,
                                  const std::string& suffix) {
  OXBOW_ASSIGN_OR_RETURN(EncoderFiles encoder, OpenEncoder(components.at("text_encoder" + suffix)));
  OXBOW_ASSIGN_OR_RETURN(auto tokenizer, OpenTokenizer<ClipTokenizer>(components, suffix, encoder));
  return ClipSide{.encoder = std::move(encoder), .tokenizer = std::move(tokenizer)};
}

absl::StatusOr<T5Side> OpenT5(const DiffusersComponents& components, const std::string& suffix) {
  OXBOW_ASSIGN_OR_RETURN(EncoderFiles encoder, OpenEncoder(components.at("text_encoder" + suffix)));
  OXBOW_ASSIGN_OR_RETURN(auto tokenizer, OpenTokenizer<T5Tokenizer>(components, suffix, encoder));
  return T5Side{.encoder = std::move(encoder), .tokenizer = std::move(tokenizer)};
}

TokenCounter CounterOf(ClipSide side) {
  const int64_t length = side.length();
  return {.tokens_max = length,
          .count = [clip = std::move(side.tokenizer)](const std::string& text) {
            return clip.Count(text);
          }};
}

TokenCounter CounterOf(T5Side side, int64_t t5_length) {
  return {.tokens_max = t5_length,
          .by_t5_length = true,
          .count = [t5 = std::move(side.tokenizer)](const std::string& text) {
            return t5.Count(text);
          }};
}

absl::Status CheckT5Width(const T5Side& t5, const DiffusersComponent& transformer, const char* key,
                          int64_t width) {
  const auto config = ParseJson(transformer.config_json);
  if (const auto& said = MemberOf(config, key); said.is_number_integer())
    width = said.get<int64_t>();
  if (t5.width() == width) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(t5.encoder.component.directory.filename().string(),
                   "'s d_model is not the transformer's ", key, ": ", t5.width(), " != ", width));
}

template <typename Tokenizer>
at::Tensor IdsOf(const Tokenizer& tokenizer, const std::vector<std::string>& texts,
                 int64_t length) {
  at::Tensor ids = at::empty({static_cast<int64_t>(texts.size()), length}, at::kLong);
  int64_t* out = ids.mutable_data_ptr<int64_t>();
  for (const std::string& text : texts) {
    const std::vector<int64_t> row = tokenizer.Encode(text, length);
    out = std::copy(row.begin(), row.end(), out);
  }
  return ids;
}

template at::Tensor IdsOf(const ClipTokenizer&, const std::vector<std::string>&, int64_t);
template at::Tensor IdsOf(const T5Tokenizer&, const std::vector<std::string>&, int64_t);

at::Tensor MaskOf(const at::Tensor& ids, const T5Tokenizer& tokenizer) {
  return ids.eq(tokenizer.end_id()).to(at::kLong).flip(1).cumsum(1).flip(1).gt(0);
}

LoadedOnDemand::LoadedOnDemand(std::vector<EncoderUse> uses, model::Shapes shapes,
                               DiffusersComponents components, const std::string& settings,
                               const Options& options)
    : options_(options),
      uses_(std::move(uses)),
      shapes_(std::move(shapes)),
      components_(std::move(components)),
      settings_(settings + GraphsOf(uses_) + (options.dtype == at::kBFloat16 ? ", bf16" : "")) {}

absl::StatusOr<std::string> LoadedOnDemand::Identity() const {
  return IdentityOfTextEncoders(components_, settings_);
}

absl::StatusOr<model::EncodedText> LoadedOnDemand::Encode(const std::vector<std::string>& texts) {
  OXBOW_CHECK(!texts.empty()) << "nothing to encode";
  if (!loaded()) {
    std::vector<std::unique_ptr<model::TextEncoder>> encoders;
    for (const EncoderUse& use : uses_) {
      OXBOW_ASSIGN_OR_RETURN(encoders.emplace_back(), LoadEncoder(use.encoder, options_));
    }
    loaded_ = std::move(encoders);
  }
  const std::vector<model::TokenIds> ids = Ids(texts);
  model::EncodedText text;
  for (size_t i = 0; i < uses_.size(); ++i) {
    OXBOW_ASSIGN_OR_RETURN(const NamedTensors outputs, loaded_[i]->Encode(ids[i]));
    for (const auto& [output, name] : uses_[i].outputs) text[name] = outputs.at(output);
  }
  Complete(ids, text);
  return text;
}

}  // namespace oxbow::io
