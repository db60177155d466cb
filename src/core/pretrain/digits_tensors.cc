#include "core/pretrain/digits_tensors.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace oxbow::task {
namespace {

// Ids of the tokenizer: 256 bytes, the same 256 ending a word, three merges, begin, end.
constexpr int64_t kTextToken = 514;
constexpr int64_t kBeginToken = 515;
constexpr int64_t kEndToken = 516;
constexpr int64_t kZeroToken = 256 + ('0' - '!');

class DigitsWorldTensors final : public WorldTensors {
 public:
  explicit DigitsWorldTensors(std::vector<Digits> prompts) : prompts_(std::move(prompts)) {}

  const World& world() const override { return **WorldNamed("digits"); }
  double caption_noise() const override { return 0.5; }
  int64_t steps() const override { return 6000; }
  // They make one token of the word "text".
  std::vector<std::string> merges() const override { return {"t e", "x t</w>", "te xt</w>"}; }

  model::Sd3Params transformer() const override {
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
    model::ClipTextParams params;
    params.vocab_size = kEndToken + 1;
    params.hidden_size = 64;
    params.intermediate_size = 128;
    params.projection_dim = 64;
    params.num_hidden_layers = 2;
    params.num_attention_heads = 2;
    params.max_position_embeddings = 6;
    params.hidden_act = "quick_gelu";
    params.bos_token_id = kBeginToken;
    params.eos_token_id = kEndToken;
    params.pad_token_id = kEndToken;
    return params;
  }

  absl::StatusOr<at::Tensor> TokenIds(const std::vector<std::string>& prompts) const override {
    std::vector<Digits> parsed;
    for (const std::string& prompt : prompts) {
      OXBOW_ASSIGN_OR_RETURN(const Digits digits, ParseDigitsPrompt(prompt));
      parsed.push_back(digits);
    }
    return DigitsTokenIds(parsed);
  }

  TrainingTensors Batch(const BatchOptions& options, int64_t step) const override {
    const std::vector<PretrainingExample> batch = PretrainingBatch(options, step, prompts_);
    const auto count = static_cast<int64_t>(batch.size());
    TrainingTensors tensors{.pictures = at::empty({count, 1, kPictureHeight, kPictureWidth}),
                            .ids = {},
                            .times = at::empty({count})};
    std::vector<Digits> captions;
    for (int64_t i = 0; i < count; ++i) {
      const auto rendered = RenderDigits(batch[i].drawn, batch[i].offset);
      std::copy(rendered.begin(), rendered.end(),
                tensors.pictures.data_ptr<float>() + i * kPicturePixels);
      tensors.times.data_ptr<float>()[i] = batch[i].time;
      captions.push_back(batch[i].caption);
    }
    tensors.ids = DigitsTokenIds(captions);
    return tensors;
  }

  // Every digit position conditioned (a mean would hide one that is not), mostly wrong numbers and
  // clean pictures.
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
  at::Tensor ids = at::empty({count, 3 + kDigitCount}, at::kLong);
  auto rows = ids.accessor<int64_t, 2>();
  for (int64_t i = 0; i < count; ++i) {
    rows[i][0] = kBeginToken;
    rows[i][1] = kTextToken;
    for (int j = 0; j < kDigitCount; ++j) rows[i][2 + j] = kZeroToken + prompts[i][j];
    rows[i][2 + kDigitCount] = kEndToken;
  }
  return ids;
}

std::unique_ptr<WorldTensors> DigitsTensors(std::vector<Digits> prompts) {
  OXBOW_CHECK(!prompts.empty()) << "no prompts to pretrain on";
  return std::make_unique<DigitsWorldTensors>(std::move(prompts));
}

}  // namespace oxbow::task
