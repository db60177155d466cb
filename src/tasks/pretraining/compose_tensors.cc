// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"
#include "tasks/compose.h"
#include "tasks/pretraining/example_tensors.h"
#include "tasks/pretraining/task_tensors.h"
#include "tasks/pretraining_batch.h"

namespace oxbow::tasks {
namespace {

at::Tensor TokenIdsOf(const std::vector<Scene>& scenes) {
  at::Tensor ids = at::empty({static_cast<int64_t>(scenes.size()), kComposeTokens}, at::kLong);
  auto* out = ids.data_ptr<int64_t>();
  for (const Scene& scene : scenes) {
    const std::vector<int64_t> row = ComposeTokenIds(scene);
    out = std::copy(row.begin(), row.end(), out);
  }
  return ids;
}

class ComposeTaskTensors final : public TaskTensors {
 public:
  explicit ComposeTaskTensors(std::vector<Scene> prompts) : prompts_(std::move(prompts)) {}

  const SyntheticTask& synthetic_task() const override { return **TaskNamed("compose"); }
  double caption_noise() const override { return 0.3; }
  int64_t steps() const override { return 12000; }
  std::vector<std::string> merges() const override { return ComposeMerges(); }

  std::optional<model::Sd3Params> transformer() const override {
    model::Sd3Params params;
    params.sample_size = kComposeSide;
    params.patch_size = 4;
    params.in_channels = kComposeChannels;
    params.out_channels = kComposeChannels;
    params.num_layers = 2;
    params.num_attention_heads = 4;
    params.attention_head_dim = 24;
    params.joint_attention_dim = 64;
    params.caption_projection_dim = 96;
    params.pooled_projection_dim = 64;
    params.pos_embed_max_size = 4;
    return params;
  }

  model::ClipTextParams text() const override {
    return SmallTextEncoder(ComposeBeginId(), ComposeEndId(), kComposeTokens);
  }

  std::vector<std::string> prompts() const override { return PromptsOf(prompts_, &ScenePrompt); }

  absl::StatusOr<at::Tensor> TokenIds(const std::vector<std::string>& prompts) const override {
    OXBOW_ASSIGN_OR_RETURN(const auto captions, ParseEach(prompts, &ParseScenePrompt));
    return TokenIdsOf(captions);
  }

  TrainingTensors Batch(const BatchOptions& options, int64_t step) const override {
    return StackExamples(
        ComposeBatch(options, step, prompts_), {kComposeChannels, kComposeSide, kComposeSide},
        [](const ComposeExample& example) { return RenderArrangement(example.drawn); },
        ScenePrompt);
  }

  absl::Status CheckBaseModel(const std::vector<Measure>& report) const override {
    const double reward = ValueOf(report, "reward");
    const bool fit = reward >= 0.50 && reward <= 0.70 && ValueOf(report, "count") >= 0.8 &&
                     ValueOf(report, "speckle") <= 0.02;
    return FitOrNot(fit, "reward .50 to .70, count .80 or more, speckle .02 or less", report);
  }

 private:
  const std::vector<Scene> prompts_;
};

}  // namespace

std::unique_ptr<TaskTensors> ComposeTensors(std::vector<Scene> prompts) {
  OXBOW_CHECK(!prompts.empty()) << "no prompts to pretrain on";
  return std::make_unique<ComposeTaskTensors>(std::move(prompts));
}

}  // namespace oxbow::tasks
