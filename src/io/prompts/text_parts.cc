// SPDX-License-Identifier: Apache-2.0
#include "io/prompts/text_parts.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "core/model/binding.h"
#include "io/prompts/prompt_store.h"
#include "io/tensor_torch.h"

namespace oxbow::io {
namespace {

using model::NamedTensors;

constexpr char kWithoutProjection[] = "CLIPTextModel";

absl::Status CheckVocabulary(const DiffusersComponent& tokenizer, int64_t ids,
                             const DiffusersComponent& encoder, int64_t vocabulary) {
  if (ids <= vocabulary) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(tokenizer.directory.string(), " gives ids up to ", ids - 1, ", but ",
                   encoder.directory.string(), " embeds ", vocabulary,
                   ": they are of different models, or the tokenizer was extended"));
}

// Whether the files have every tensor that the encoder needs, by their headers. `published`: the
// name that a file's tensor has in `expected`.
absl::Status CheckTensors(const DiffusersComponent& encoder, const model::Shapes& expected,
                          std::string (*published)(const std::string& name)) {
  OXBOW_ASSIGN_OR_RETURN(const auto headers, ReadComponentHeaders(encoder));
  model::Shapes there;
  for (const auto& [name, header] : headers) {
    const std::string known = published(name);
    if (expected.contains(known)) there.emplace(known, header.shape);
  }
  return DataError(model::CheckFit(expected, there), encoder.directory.string());
}

}  // namespace

int64_t ClipSide::length() const {
  return std::min(params.max_position_embeddings, tokenizer.model_max_length());
}

absl::StatusOr<ClipSide> OpenClip(const DiffusersComponents& components,
                                  const std::string& suffix) {
  const DiffusersComponent& encoder = components.at("text_encoder" + suffix);
  const auto words = components.find("tokenizer" + suffix);
  if (words == components.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("model_index.json has text_encoder", suffix, " but no tokenizer", suffix));
  }
  auto params = model::ParseClipTextConfig(encoder.config_json);
  if (!params.ok()) return DataError(params.status(), (encoder.directory / "config.json").string());
  params->projected = encoder.class_name != kWithoutProjection;
  auto tokenizer = ClipTokenizer::Load(words->second.directory);
  if (!tokenizer.ok()) return tokenizer.status();
  OXBOW_RETURN_IF_ERROR(
      CheckVocabulary(words->second, tokenizer->size(), encoder, params->vocab_size));
  OXBOW_RETURN_IF_ERROR(
      CheckTensors(encoder, model::ClipTextShapes(*params), model::PublishedClipTextName));
  return ClipSide{
      .component = encoder, .tokenizer = *std::move(tokenizer), .params = *std::move(params)};
}

absl::StatusOr<T5Side> OpenT5(const DiffusersComponents& components, const std::string& suffix) {
  const DiffusersComponent& encoder = components.at("text_encoder" + suffix);
  const auto words = components.find("tokenizer" + suffix);
  if (words == components.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("model_index.json has text_encoder", suffix, " but no tokenizer", suffix));
  }
  auto params = model::ParseT5Config(encoder.config_json);
  if (!params.ok()) return DataError(params.status(), (encoder.directory / "config.json").string());
  auto tokenizer = T5Tokenizer::Load(words->second.directory);
  if (!tokenizer.ok()) return tokenizer.status();
  OXBOW_RETURN_IF_ERROR(
      CheckVocabulary(words->second, tokenizer->size(), encoder, params->vocab_size));
  OXBOW_RETURN_IF_ERROR(CheckTensors(encoder, model::T5Shapes(*params), model::PublishedT5Name));
  return T5Side{.component = encoder, .tokenizer = *std::move(tokenizer), .params = *params};
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
  if (t5.params.d_model == width) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(t5.component.directory.filename().string(),
                                                    "'s d_model is not the transformer's ", key,
                                                    ": ", t5.params.d_model, " != ", width));
}

absl::StatusOr<std::unique_ptr<model::ClipTextEncoder>> LoadClip(const ClipSide& side,
                                                                 const TextEncoders::Options& to) {
  OXBOW_ASSIGN_OR_RETURN(const WeightFiles files, OpenComponentWeights(side.component));
  OXBOW_ASSIGN_OR_RETURN(NamedTensors tensors, LoadTensors(files));
  for (auto& [name, tensor] : tensors) {
    tensor = tensor.is_floating_point() ? tensor.to(to.device, to.dtype) : tensor.to(to.device);
  }
  auto encoder = model::MakeClipTextEncoder(side.params, tensors);
  if (!encoder.ok()) return DataError(encoder.status(), side.component.directory.string());
  return encoder;
}

absl::StatusOr<std::unique_ptr<model::T5Encoder>> LoadT5(const T5Side& side,
                                                         const TextEncoders::Options& to) {
  OXBOW_ASSIGN_OR_RETURN(const WeightFiles files, OpenComponentWeights(side.component));
  const auto of_encoder = [](const std::string& name) {
    return !name.starts_with("decoder.") && name != "lm_head.weight";
  };
  OXBOW_ASSIGN_OR_RETURN(NamedTensors tensors,
                         LoadTensors(files, {.floats_as = std::nullopt, .wanted = of_encoder}));
  const auto query = tensors.find("encoder.block.0.layer.0.SelfAttention.q.weight");
  at::ScalarType type = query == tensors.end() ? at::kFloat : query->second.scalar_type();
  if (type != at::kHalf && type != at::kBFloat16) type = at::kFloat;
  if (to.dtype == at::kBFloat16) type = at::kBFloat16;
  for (auto& [name, tensor] : tensors) {
    tensor = tensor.to(to.device, model::T5StorageType(name, type));
  }
  auto encoder = model::MakeT5Encoder(side.params, tensors);
  if (!encoder.ok()) return DataError(encoder.status(), side.component.directory.string());
  return encoder;
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

absl::StatusOr<std::string> LoadedOnDemand::Identity() const {
  return IdentityOfTextEncoders(components_, settings_);
}

absl::StatusOr<model::EncodedText> LoadedOnDemand::Encode(const std::vector<std::string>& texts) {
  OXBOW_CHECK(!texts.empty()) << "nothing to encode";
  const at::NoGradGuard no_gradients;
  if (text_ == nullptr) {
    OXBOW_ASSIGN_OR_RETURN(text_, Load());
  }
  std::vector<at::Tensor> ids = Ids(texts);
  for (at::Tensor& tensor : ids) tensor = tensor.to(options_.device);
  model::EncodedText text = text_->Encode(ids);
  for (auto& [name, tensor] : text) tensor = tensor.to(at::kCPU, at::kFloat);
  return text;
}

}  // namespace oxbow::io
