// SPDX-License-Identifier: Apache-2.0
#include "tasks/pretraining/small_t5.h"

#include "absl/strings/str_cat.h"
#include "core/model/initial_weights.h"

namespace oxbow::model {
std::string T5ConfigJson(const T5Params& params);
}  // namespace oxbow::model

namespace oxbow::tasks {

absl::StatusOr<int64_t> PromptWidth(const model::Architecture& transformer,
                                    const std::string& name) {
  for (const model::ConditioningPart& part : transformer.conditioning()) {
    if (part.name == name && !part.shape.empty()) return part.shape.back();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(transformer.class_name(), " takes no prompt as '", name, "'"));
}

model::T5Params SmallT5(const PieceVocabulary& vocabulary, int64_t width, bool bias_per_block) {
  model::T5Params params;
  params.vocab_size = static_cast<int64_t>(vocabulary.pieces().size());
  params.d_model = width;
  params.d_kv = 16;
  params.d_ff = 2 * width;
  params.num_layers = 2;
  params.num_heads = 4;
  params.bias_per_block = bias_per_block;
  return params;
}

PretrainedEncoder SmallT5Encoder(const std::string& component, const model::T5Params& params,
                                 const PieceVocabulary& vocabulary) {
  return {.component = component,
          .config_json = model::T5ConfigJson(params),
          .pieces = vocabulary.pieces(),
          .length = vocabulary.length(),
          .initial = [params](double embedding_std, RandomStream& random) {
            return model::InitialT5Weights(params, embedding_std, random);
          }};
}

}  // namespace oxbow::tasks
