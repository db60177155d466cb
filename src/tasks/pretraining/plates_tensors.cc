// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/status_macros.h"
#include "tasks/plates.h"
#include "tasks/pretraining/example_tensors.h"
#include "tasks/pretraining/task_tensors.h"

namespace oxbow::tasks {
namespace {

// Ids of the tokenizer of models/digits: 256 bytes, the same 256 bytes at the end of a word, three
// merges, begin, end.
constexpr int64_t kPlateTextToken = 514;
constexpr int64_t kPlateBeginToken = 515;
constexpr int64_t kPlateEndToken = 516;
constexpr int64_t kQuoteToken = 256 + ('"' - '!');
constexpr int64_t kPlateZeroToken = 256 + ('0' - '!');
constexpr int64_t kPlateTokens = 5 + kDigitCount;  // Begin, "text", quote, digits, quote, end.

class PlatesTaskTensors final : public TaskTensors {
 public:
  explicit PlatesTaskTensors(std::vector<Digits> prompts) : prompts_(std::move(prompts)) {}

  const SyntheticTask& synthetic_task() const override { return **TaskNamed("plates"); }
  double caption_noise() const override { return 0.5; }
  int64_t steps() const override { return 3500; }
  std::vector<std::string> merges() const override { return {"t e", "x t</w>", "te xt</w>"}; }

  std::optional<model::Sd3Params> transformer() const override {
    model::Sd3Params params;
    params.sample_size = kPlateWidth;
    params.patch_size = 4;
    params.in_channels = 1;
    params.out_channels = 1;
    params.num_layers = 3;
    params.num_attention_heads = 4;
    params.attention_head_dim = 16;
    params.joint_attention_dim = 64;
    params.caption_projection_dim = 64;
    params.pooled_projection_dim = 64;
    params.pos_embed_max_size = kPlateWidth / 4;
    return params;
  }

  model::ClipTextParams text() const override {
    return SmallTextEncoder(kPlateBeginToken, kPlateEndToken, kPlateTokens);
  }

  std::vector<std::string> prompts() const override { return PromptsOf(prompts_, &PlatePrompt); }

  absl::StatusOr<at::Tensor> TokenIds(const std::vector<std::string>& prompts) const override {
    OXBOW_ASSIGN_OR_RETURN(const auto captions, ParseEach(prompts, &ParsePlatePrompt));
    return PlatesTokenIds(captions);
  }

  TrainingTensors Batch(const BatchOptions& options, int64_t step) const override {
    return StackExamples(
        PretrainingBatch(options, step, prompts_, kPlateOffsets), {1, kPlateHeight, kPlateWidth},
        [](const PretrainingExample& example) {
          return RenderPlate(example.drawn, example.offset);
        },
        PlatePrompt);
  }

  // As for `digits`: every position follows the prompt, most numbers are wrong, images are clean.
  absl::Status CheckBaseModel(const std::vector<Measure>& report) const override {
    const double reward = ValueOf(report, "reward");
    bool fit = reward >= 0.40 && reward <= 0.62 && ValueOf(report, "speckle") <= 0.04 &&
               ValueOf(report, "unreadable") <= 0.03;
    for (const char* digit : {"digit_1_accuracy", "digit_2_accuracy", "digit_3_accuracy"}) {
      fit = fit && ValueOf(report, digit) >= 0.45;
    }
    return FitOrNot(fit,
                    "each digit right in .45 or more, reward .40 to .62, speckle .04 or less, "
                    "unreadable .03 or less",
                    report);
  }

 private:
  const std::vector<Digits> prompts_;
};

}  // namespace

at::Tensor PlatesTokenIds(const std::vector<Digits>& prompts) {
  const auto count = static_cast<int64_t>(prompts.size());
  at::Tensor ids = at::empty({count, kPlateTokens}, at::kLong);
  auto* out = ids.data_ptr<int64_t>();
  for (const Digits& digits : prompts) {
    const std::array<int64_t, kPlateTokens> row = {kPlateBeginToken,
                                                   kPlateTextToken,
                                                   kQuoteToken,
                                                   kPlateZeroToken + digits[0],
                                                   kPlateZeroToken + digits[1],
                                                   kPlateZeroToken + digits[2],
                                                   kQuoteToken,
                                                   kPlateEndToken};
    out = std::copy(row.begin(), row.end(), out);
  }
  return ids;
}

std::unique_ptr<TaskTensors> PlatesTensors(std::vector<Digits> prompts) {
  OXBOW_CHECK(!prompts.empty()) << "no prompts to pretrain on";
  return std::make_unique<PlatesTaskTensors>(std::move(prompts));
}

}  // namespace oxbow::tasks
