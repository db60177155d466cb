// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <utility>

#include "base/status_macros.h"
#include "tasks/pretraining/piece_vocabulary.h"
#include "tasks/pretraining/small_t5.h"
#include "tasks/pretraining/text_networks.h"

namespace oxbow::tasks {
namespace {

constexpr char kEncoder[] = "text_encoder";
constexpr int64_t kPadding = 0;

class WanText final : public PretrainedText {
 public:
  WanText(const TaskTensors& task, int64_t width)
      : task_(task),
        vocabulary_(task.prompts()),
        t5_(SmallT5(vocabulary_, width, /*bias_per_block=*/true)),
        encoders_{SmallT5Encoder(kEncoder, t5_, vocabulary_)} {}

  const std::vector<PretrainedEncoder>& encoders() const override { return encoders_; }
  absl::StatusOr<std::vector<at::Tensor>> TokenIds(
      const std::vector<std::string>& prompts) const override {
    OXBOW_RETURN_IF_ERROR(task_.TokenIds(prompts).status());
    const at::Tensor ids = vocabulary_.TokenIds(prompts);
    return std::vector<at::Tensor>{ids, ids.ne(kPadding)};
  }
  absl::StatusOr<std::unique_ptr<model::TextConditioning>> Make(
      const ComponentWeights& weights) const override {
    OXBOW_ASSIGN_OR_RETURN(auto t5, model::MakeT5Encoder(t5_, weights.at(kEncoder)));
    return model::MakeWanTextConditioning(std::move(t5));
  }
  model::Conditioning Compose(const model::EncodedText& text) const override {
    return model::ComposeWan(text);
  }

 private:
  const TaskTensors& task_;
  const PieceVocabulary vocabulary_;
  const model::T5Params t5_;
  const std::vector<PretrainedEncoder> encoders_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PretrainedText>> MakeWanText(const model::Architecture& transformer,
                                                            const TaskTensors& task) {
  OXBOW_ASSIGN_OR_RETURN(const int64_t width, PromptWidth(transformer, model::kPromptTokens));
  return std::make_unique<WanText>(task, width);
}

}  // namespace oxbow::tasks
