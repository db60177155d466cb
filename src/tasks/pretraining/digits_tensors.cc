// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"
#include "tasks/pretraining/example_tensors.h"
#include "tasks/pretraining/task_tensors.h"

namespace oxbow::tasks {
namespace {

// Ids of the tokenizer: 256 bytes, the same 256 bytes at the end of a word, three merges, begin,
// end.
constexpr int64_t kTextToken = 514;
constexpr int64_t kBeginToken = 515;
constexpr int64_t kEndToken = 516;
constexpr int64_t kZeroToken = 256 + ('0' - '!');
constexpr int64_t kTokens = 3 + kDigitCount;  // Begin, "text", digits, end.

class DigitsTaskTensors final : public TaskTensors {
 public:
  explicit DigitsTaskTensors(std::vector<Digits> prompts) : prompts_(std::move(prompts)) {}

  const SyntheticTask& synthetic_task() const override { return **TaskNamed("digits"); }
  double caption_noise() const override { return 0.5; }
  int64_t steps() const override { return 6000; }
  // The merges that make the word "text" one token.
  std::vector<std::string> merges() const override { return {"t e", "x t</w>", "te xt</w>"}; }

  std::optional<model::Sd3Params> transformer() const override {
    model::Sd3Params params;
    params.sample_size = 20;
    params.patch_size = 4;
    params.in_channels = 1;
    params.out_channels = 1;
    params.num_layers = 3;
    params.num_attention_heads = 4;
    params.attention_head_dim = 16;
    params.joint_attention_dim = 64;
    params.caption_projection_dim = 64;
    params.pooled_projection_dim = 64;
    params.pos_embed_max_size = 5;
    return params;
  }

  model::ClipTextParams text() const override {
    return SmallTextEncoder(kBeginToken, kEndToken, kTokens);
  }

  std::vector<std::string> prompts() const override { return PromptsOf(prompts_, &DigitsPrompt); }

  absl::StatusOr<at::Tensor> TokenIds(const std::vector<std::string>& prompts) const override {
    OXBOW_ASSIGN_OR_RETURN(const auto captions, ParseEach(prompts, &ParseDigitsPrompt));
    return DigitsTokenIds(captions);
  }

  TrainingTensors Batch(const BatchOptions& options, int64_t step) const override {
    return StackExamples(
        PretrainingBatch(options, step, prompts_), {1, kImageHeight, kImageWidth},
        [](const PretrainingExample& example) {
          return RenderDigits(example.drawn, example.offset);
        },
        DigitsPrompt);
  }

  // Requires that every digit position follows the prompt (a mean over positions would hide one
  // that does not), that most numbers are wrong, and that the images are clean.
  absl::Status CheckBaseModel(const std::vector<Measure>& report) const override {
    const double reward = ValueOf(report, "reward");
    bool fit = reward >= 0.40 && reward <= 0.62 && ValueOf(report, "speckle") <= 0.03;
    for (const char* digit : {"digit_1_accuracy", "digit_2_accuracy", "digit_3_accuracy"}) {
      fit = fit && ValueOf(report, digit) >= 0.45;
    }
    return FitOrNot(fit, "each digit right in .45 or more, reward .40 to .62, speckle .03 or less",
                    report);
  }

 private:
  const std::vector<Digits> prompts_;
};

}  // namespace

at::Tensor DigitsTokenIds(const std::vector<Digits>& prompts) {
  const auto count = static_cast<int64_t>(prompts.size());
  at::Tensor ids = at::empty({count, kTokens}, at::kLong);
  auto rows = ids.accessor<int64_t, 2>();
  for (int64_t i = 0; i < count; ++i) {
    rows[i][0] = kBeginToken;
    rows[i][1] = kTextToken;
    for (int j = 0; j < kDigitCount; ++j) rows[i][2 + j] = kZeroToken + prompts[i][j];
    rows[i][2 + kDigitCount] = kEndToken;
  }
  return ids;
}

std::unique_ptr<TaskTensors> DigitsTensors(std::vector<Digits> prompts) {
  OXBOW_CHECK(!prompts.empty()) << "no prompts to pretrain on";
  return std::make_unique<DigitsTaskTensors>(std::move(prompts));
}

}  // namespace oxbow::tasks
