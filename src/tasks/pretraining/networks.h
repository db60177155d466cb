// SPDX-License-Identifier: Apache-2.0
// The networks of a model that is pretrained: any architecture, and small text encoders as its
// pipeline has them. Their sizes follow from what the architecture takes as a prompt.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/philox.h"
#include "core/model/architecture.h"
#include "core/model/conditioning.h"
#include "core/model/parameters.h"
#include "core/model/text_conditioning.h"
#include "tasks/pretraining/task_tensors.h"

namespace oxbow::tasks {

// Weights by component of a diffusers directory: "transformer", "text_encoder", "text_encoder_2".
using ComponentWeights = std::map<std::string, model::NamedTensors>;
inline constexpr char kTransformer[] = "transformer";

struct PretrainedEncoder {
  std::string component;
  std::string config_json;
  std::vector<std::string> pieces;  // A T5 tokenizer's; empty: CLIP's, of TaskTensors::merges().
  int64_t length = 0;               // Tokens of a prompt.
  // Fresh weights; `embedding_std` is that of the token embeddings.
  std::function<model::NamedTensors(double embedding_std, RandomStream& random)> initial;
};

class PretrainedText {
 public:
  virtual ~PretrainedText() = default;

  virtual const std::vector<PretrainedEncoder>& encoders() const = 0;
  // One tensor of ids per encoder, and where one takes a mask, its mask. kInvalidArgument names a
  // prompt of another task.
  virtual absl::StatusOr<std::vector<at::Tensor>> TokenIds(
      const std::vector<std::string>& prompts) const = 0;
  // Binds the weights of the encoders.
  virtual absl::StatusOr<std::unique_ptr<model::TextConditioning>> Make(
      const ComponentWeights& weights) const = 0;
  virtual model::Conditioning Compose(const model::EncodedText& text) const = 0;
};

struct Networks {
  std::shared_ptr<const model::Architecture> transformer;
  std::unique_ptr<PretrainedText> text;
};

// `text_side`: how the pipeline of this transformer encodes prompts, as in io's table of pipelines.
// `task` outlives the result. kInvalidArgument for a text side that has no small encoders, and for
// a transformer with inputs or latents that do not fit the task.
absl::StatusOr<Networks> MakeNetworks(std::shared_ptr<const model::Architecture> transformer,
                                      const std::string& text_side, const TaskTensors& task);

// The networks of the task's own model.
absl::StatusOr<Networks> OwnNetworks(const TaskTensors& task);

// Fresh weights of all components, and of buffers where there is a rule for them: kInvalidArgument
// if there is none.
absl::StatusOr<ComponentWeights> InitialWeights(const Networks& networks, const TaskTensors& task,
                                                uint64_t seed, double embedding_std);

}  // namespace oxbow::tasks
