// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "tasks/pretraining/example_tensors.h"
#include "tasks/pretraining/task_tensors.h"

namespace oxbow::tasks {
namespace {

// Ids of the tokenizer: 256 bytes, the same 256 bytes at the end of a word, three merges, begin,
// end.
constexpr int64_t kClipToken = 514;
constexpr int64_t kClipBeginToken = 515;
constexpr int64_t kClipEndToken = 516;
constexpr int64_t kClipZeroToken = 256 + ('0' - '!');
constexpr int64_t kClipTokens = 3 + kClipDigits;  // Begin, "clip", digits, end.

class ClipTaskTensors final : public TaskTensors {
 public:
  explicit ClipTaskTensors(std::vector<ClipNumber> prompts) : prompts_(std::move(prompts)) {}

  const SyntheticTask& synthetic_task() const override { return **TaskNamed("clip"); }
  double caption_noise() const override { return 0.5; }
  int64_t steps() const override { return 8000; }
  // The merges that make the word "clip" one token.
  std::vector<std::string> merges() const override { return {"c l", "i p</w>", "cl ip</w>"}; }

  std::optional<model::Sd3Params> transformer() const override { return std::nullopt; }
  model::ClipTextParams text() const override {
    return SmallTextEncoder(kClipBeginToken, kClipEndToken, kClipTokens);
  }

  std::vector<std::string> prompts() const override { return PromptsOf(prompts_, &ClipPrompt); }

  absl::StatusOr<at::Tensor> TokenIds(const std::vector<std::string>& prompts) const override {
    OXBOW_ASSIGN_OR_RETURN(const auto captions, ParseEach(prompts, &ParseClipPrompt));
    const auto count = static_cast<int64_t>(captions.size());
    at::Tensor ids = at::empty({count, kClipTokens}, at::kLong);
    auto rows = ids.accessor<int64_t, 2>();
    for (int64_t i = 0; i < count; ++i) {
      rows[i][0] = kClipBeginToken;
      rows[i][1] = kClipToken;
      for (int j = 0; j < kClipDigits; ++j) rows[i][2 + j] = kClipZeroToken + captions[i][j];
      rows[i][2 + kClipDigits] = kClipEndToken;
    }
    return ids;
  }

  TrainingTensors Batch(const BatchOptions& options, int64_t step) const override {
    return StackExamples(
        ClipBatch(options, step, prompts_), {1, kClipFrames, kClipHeight, kClipWidth},
        [](const ClipExample& example) { return RenderClip(example.drawn, example.layout); },
        ClipPrompt);
  }

  // As for digits, and in every frame: a mean would hide a frame that does not follow the prompt.
  absl::Status CheckBaseModel(const std::vector<Measure>& report) const override {
    const double reward = ValueOf(report, "reward");
    bool fit = reward >= 0.30 && reward <= 0.62 && ValueOf(report, "unreadable") <= 0.28 &&
               ValueOf(report, "steady") >= 0.28 && ValueOf(report, "speckle") <= 0.04;
    for (const char* part : {"digit_1_accuracy", "digit_2_accuracy", "frame_1_accuracy",
                             "frame_2_accuracy", "frame_3_accuracy"}) {
      fit = fit && ValueOf(report, part) >= 0.28;
    }
    return FitOrNot(fit,
                    "digits right in .28 or more at each place and in each frame, reward .30 to "
                    ".62, unreadable .28 or less, steady .28 or more, speckle .04 or less",
                    report);
  }

 private:
  const std::vector<ClipNumber> prompts_;
};

}  // namespace

std::unique_ptr<TaskTensors> ClipTensors(std::vector<ClipNumber> prompts) {
  OXBOW_CHECK(!prompts.empty()) << "no prompts to pretrain on";
  return std::make_unique<ClipTaskTensors>(std::move(prompts));
}

}  // namespace oxbow::tasks
