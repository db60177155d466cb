// SPDX-License-Identifier: Apache-2.0
#include "tasks/pretraining/text_networks.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/initial_weights.h"
#include "core/model/t5.h"
#include "tasks/pretraining/piece_vocabulary.h"
#include "tasks/pretraining/small_t5.h"

namespace oxbow::tasks {
namespace {

constexpr char kFirst[] = "text_encoder";
constexpr char kSecond[] = "text_encoder_2";

PretrainedEncoder ClipEncoder(const model::ClipTextParams& params) {
  return {.component = kFirst,
          .config_json = model::ClipTextConfigJson(params),
          .pieces = {},
          .length = params.max_position_embeddings,
          .initial = [params](double embedding_std, RandomStream& random) {
            return model::InitialClipTextWeights(params, embedding_std, random);
          }};
}

class SingleClipText final : public PretrainedText {
 public:
  explicit SingleClipText(const TaskTensors& task)
      : task_(task), params_(task.text()), encoders_{ClipEncoder(params_)} {}

  const std::vector<PretrainedEncoder>& encoders() const override { return encoders_; }
  absl::StatusOr<std::vector<at::Tensor>> TokenIds(
      const std::vector<std::string>& prompts) const override {
    OXBOW_ASSIGN_OR_RETURN(at::Tensor ids, task_.TokenIds(prompts));
    return std::vector<at::Tensor>{std::move(ids)};
  }
  absl::StatusOr<std::unique_ptr<model::TextConditioning>> Make(
      const ComponentWeights& weights) const override {
    OXBOW_ASSIGN_OR_RETURN(auto clip, model::MakeClipTextEncoder(params_, weights.at(kFirst)));
    return model::MakeSingleClipConditioning(std::move(clip));
  }
  model::Conditioning Compose(const model::EncodedText& text) const override {
    return model::ComposeSingleClip(text);
  }

 private:
  const TaskTensors& task_;
  const model::ClipTextParams params_;
  const std::vector<PretrainedEncoder> encoders_;
};

class FluxText final : public PretrainedText {
 public:
  FluxText(const TaskTensors& task, int64_t pooled_width, int64_t token_width)
      : task_(task),
        vocabulary_(task.prompts()),
        clip_(ClipParams(task, pooled_width)),
        t5_(SmallT5(vocabulary_, token_width, /*bias_per_block=*/false)),
        encoders_{ClipEncoder(clip_), SmallT5Encoder(kSecond, t5_, vocabulary_)} {}

  const std::vector<PretrainedEncoder>& encoders() const override { return encoders_; }
  absl::StatusOr<std::vector<at::Tensor>> TokenIds(
      const std::vector<std::string>& prompts) const override {
    OXBOW_ASSIGN_OR_RETURN(at::Tensor ids, task_.TokenIds(prompts));
    return std::vector<at::Tensor>{std::move(ids), vocabulary_.TokenIds(prompts)};
  }
  absl::StatusOr<std::unique_ptr<model::TextConditioning>> Make(
      const ComponentWeights& weights) const override {
    OXBOW_ASSIGN_OR_RETURN(auto clip, model::MakeClipTextEncoder(clip_, weights.at(kFirst)));
    OXBOW_ASSIGN_OR_RETURN(auto t5, model::MakeT5Encoder(t5_, weights.at(kSecond)));
    return model::MakeFluxTextConditioning(std::move(clip), std::move(t5));
  }
  model::Conditioning Compose(const model::EncodedText& text) const override {
    return model::ComposeFlux(text);
  }

 private:
  static model::ClipTextParams ClipParams(const TaskTensors& task, int64_t width) {
    model::ClipTextParams params = task.text();
    params.projected = false;
    params.hidden_size = params.projection_dim = width;
    params.intermediate_size = 2 * width;
    return params;
  }

  const TaskTensors& task_;
  const PieceVocabulary vocabulary_;
  const model::ClipTextParams clip_;
  const model::T5Params t5_;
  const std::vector<PretrainedEncoder> encoders_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PretrainedText>> MakeSingleClipText(
    const model::Architecture& transformer, const TaskTensors& task) {
  const model::ClipTextParams params = task.text();
  OXBOW_ASSIGN_OR_RETURN(const int64_t tokens, PromptWidth(transformer, model::kPromptTokens));
  OXBOW_ASSIGN_OR_RETURN(const int64_t pooled, PromptWidth(transformer, model::kPooledPrompt));
  if (tokens != params.hidden_size || pooled != params.projection_dim) {
    return absl::InvalidArgumentError(
        absl::StrCat(transformer.class_name(), " takes prompts ", tokens, " and ", pooled,
                     " wide; this task's text encoder gives ", params.hidden_size, " and ",
                     params.projection_dim));
  }
  return std::make_unique<SingleClipText>(task);
}

absl::StatusOr<std::unique_ptr<PretrainedText>> MakeFluxText(const model::Architecture& transformer,
                                                             const TaskTensors& task) {
  OXBOW_ASSIGN_OR_RETURN(const int64_t tokens, PromptWidth(transformer, model::kPromptTokens));
  OXBOW_ASSIGN_OR_RETURN(const int64_t pooled, PromptWidth(transformer, model::kPooledPrompt));
  if (pooled % task.text().num_attention_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a pooled prompt must be a multiple of ",
                                                   task.text().num_attention_heads,
                                                   " wide: ", pooled));
  }
  return std::make_unique<FluxText>(task, pooled, tokens);
}

}  // namespace oxbow::tasks
