#include "core/pretrain/pretraining.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/philox.h"
#include "base/status_macros.h"
#include "core/model/image_decoder.h"
#include "core/model/initial_weights.h"
#include "core/model/picture_sampler.h"
#include "core/model/text_conditioning.h"
#include "core/rl/adamw.h"

namespace oxbow::task {
namespace {

// Ids of the tokenizer: 256 bytes, the same 256 ending a word, three merges, begin, end.
constexpr int64_t kTextToken = 514;
constexpr int64_t kBeginToken = 515;
constexpr int64_t kEndToken = 516;
constexpr int64_t kZeroToken = 256 + ('0' - '!');

// One network's weights with their optimiser and running average.
struct Trained {
  Trained(const rl::AdamWOptions& options, const model::NamedTensors& tensors)
      : parameters(tensors, /*trainable=*/true),
        average(tensors, /*trainable=*/false),
        optimizer(options, average.flat()) {}

  // `gradient_scale` clips; `rate_factor` is the schedule of the learning rate.
  void Update(double gradient_scale, double rate_factor, double ema_decay) {
    const at::NoGradGuard no_grad;
    optimizer.Step(parameters.flat(), parameters.flat_grad() * gradient_scale, rate_factor);
    rl::UpdateEma(average.flat(), parameters.flat(), ema_decay);
  }

  double GradientSquares() {
    const at::NoGradGuard no_grad;
    return parameters.flat_grad().square().sum().item<double>();
  }

  model::ParameterSet parameters;
  model::ParameterSet average;
  rl::AdamW optimizer;
};

rl::AdamWOptions OptimizerOptions(const PretrainingOptions& options) {
  return {.learning_rate = options.learning_rate,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .epsilon = options.epsilon,
          .weight_decay = options.weight_decay,
          .warmup_updates = options.warmup_steps};
}

model::NamedTensors Copies(const model::NamedTensors& tensors) {
  model::NamedTensors copies;
  for (const auto& [name, tensor] : tensors) copies[name] = tensor.detach().clone();
  return copies;
}

}  // namespace

model::Sd3Params DigitsTransformerParams() {
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

model::ClipTextParams DigitsTextParams() {
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

double DecayFactor(const PretrainingOptions& options, int64_t step) {
  const auto steps = static_cast<double>(options.steps);
  const double decay_start = steps * (1 - options.decay_share);
  const double into = (static_cast<double>(step) - decay_start) / (steps - decay_start);
  return 1 - (1 - options.decay_to) * std::clamp(into, 0.0, 1.0);
}

struct Pretraining::Impl {
  Impl(PretrainingOptions o, std::vector<Digits> p, const model::NamedTensors& transformer_tensors,
       const model::NamedTensors& text_tensors)
      : options(std::move(o)),
        prompts(std::move(p)),
        transformer(OptimizerOptions(options), transformer_tensors),
        text(OptimizerOptions(options), text_tensors) {}

  at::Tensor Loss() const;

  const PretrainingOptions options;
  const std::vector<Digits> prompts;
  model::NamedTensors frozen;  // The position table.
  Trained transformer;
  Trained text;
  std::unique_ptr<model::VelocityModel> velocity_model;
  std::unique_ptr<model::TextConditioning> conditioning;
  int64_t step = 0;
};

absl::StatusOr<std::unique_ptr<Pretraining>> Pretraining::Create(PretrainingOptions options,
                                                                 std::vector<Digits> prompts) {
  OXBOW_CHECK(!prompts.empty()) << "no prompts to pretrain on";
  const uint64_t seed = options.batch.seed;
  RandomStream transformer_random({.seed = seed, .group = 0, .step = kWeightInit});
  RandomStream text_random({.seed = seed, .group = 1, .step = kWeightInit});
  const model::Sd3Params transformer_params = DigitsTransformerParams();
  const model::ClipTextParams text_params = DigitsTextParams();
  model::NamedTensors transformer =
      model::InitialSd3Weights(transformer_params, transformer_random);
  model::NamedTensors frozen;
  frozen.insert(transformer.extract(model::kSd3PositionTable));
  const model::NamedTensors text =
      model::InitialClipTextWeights(text_params, options.embedding_std, text_random);
  auto impl = std::make_unique<Impl>(std::move(options), std::move(prompts), transformer, text);
  impl->frozen = std::move(frozen);
  model::NamedTensors bound = impl->transformer.parameters.tensors();
  bound.insert(impl->frozen.begin(), impl->frozen.end());
  OXBOW_ASSIGN_OR_RETURN(impl->velocity_model,
                         model::MakeSd3Transformer(transformer_params, bound));
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<model::ClipTextEncoder> encoder,
                         model::MakeClipTextEncoder(text_params, impl->text.parameters.tensors()));
  impl->conditioning = model::MakeSingleClipConditioning(std::move(encoder));
  return std::unique_ptr<Pretraining>(new Pretraining(std::move(impl)));
}

Pretraining::Pretraining(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pretraining::~Pretraining() = default;
int64_t Pretraining::steps_done() const { return impl_->step; }

at::Tensor Pretraining::Impl::Loss() const {
  const std::vector<PretrainingExample> batch = PretrainingBatch(options.batch, step, prompts);
  const auto count = static_cast<int64_t>(batch.size());
  const at::Tensor pictures = at::empty({count, 1, kPictureHeight, kPictureWidth});
  const at::Tensor noise = at::empty_like(pictures);
  const at::Tensor times = at::empty({count});
  std::vector<Digits> captions;
  for (int64_t i = 0; i < count; ++i) {
    const auto rendered = RenderDigits(batch[i].drawn, batch[i].offset);
    std::copy(rendered.begin(), rendered.end(), pictures.data_ptr<float>() + i * kPicturePixels);
    times.data_ptr<float>()[i] = batch[i].time;
    captions.push_back(batch[i].caption);
  }
  RandomStream random(
      {.seed = options.batch.seed, .group = static_cast<uint64_t>(step), .step = kInitialLatent});
  random.FillNormal({noise.data_ptr<float>(), static_cast<size_t>(noise.numel())});
  const at::Tensor t = times.view({count, 1, 1, 1});
  const at::Tensor x = (1 - t) * pictures + t * noise;
  const at::Tensor velocity =
      velocity_model->Velocity(x, times, conditioning->Compose({DigitsTokenIds(captions)}));
  return (velocity - (noise - pictures)).square().mean();
}

absl::StatusOr<double> Pretraining::Step() {
  Impl& self = *impl_;
  self.transformer.parameters.ZeroGrad();
  self.text.parameters.ZeroGrad();
  const at::Tensor loss = self.Loss();
  loss.backward();
  const double norm = std::sqrt(self.transformer.GradientSquares() + self.text.GradientSquares());
  const double value = loss.item<double>();
  if (!std::isfinite(value) || !std::isfinite(norm)) {
    return absl::InternalError(
        absl::StrCat("pretraining diverged (try another seed or a lower learning rate): step ",
                     self.step, ", loss ", value, ", gradient norm ", norm));
  }
  const double scale = std::min(1.0, self.options.grad_norm_max / (norm + 1e-6));
  const double rate_factor = DecayFactor(self.options, self.step);
  self.transformer.Update(scale, rate_factor, self.options.ema_decay);
  self.text.Update(scale, rate_factor, self.options.ema_decay);
  ++self.step;
  return value;
}

model::NamedTensors Pretraining::TransformerWeights() const {
  model::NamedTensors weights = Copies(impl_->transformer.average.tensors());
  for (const auto& [name, tensor] : impl_->frozen) weights[name] = tensor.clone();
  return weights;
}

model::NamedTensors Pretraining::TextWeights() const {
  return Copies(impl_->text.average.tensors());
}

absl::StatusOr<DigitsReport> EvaluateDigits(const model::NamedTensors& transformer,
                                            const model::NamedTensors& text,
                                            const std::vector<Digits>& prompts, int per_prompt,
                                            const std::vector<double>& sigmas, uint64_t seed) {
  const at::NoGradGuard no_grad;
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<model::VelocityModel> velocity_model,
                         model::MakeSd3Transformer(DigitsTransformerParams(), transformer));
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<model::ClipTextEncoder> encoder,
                         model::MakeClipTextEncoder(DigitsTextParams(), text));
  const auto conditioning = model::MakeSingleClipConditioning(std::move(encoder));
  const at::Tensor pictures = model::SamplePictures(
      *velocity_model, *model::MakePixelDecoder(), model::OdeSpec(sigmas),
      model::RequestsFor(conditioning->Compose({DigitsTokenIds(prompts)}), per_prompt, seed),
      {1, kPictureHeight, kPictureWidth});
  DigitsTally tally;
  const auto* pixels = pictures.data_ptr<uint8_t>();
  for (int64_t i = 0; i < pictures.size(0); ++i) {
    tally.Add(prompts[i / per_prompt], {pixels + i * kPicturePixels, kPicturePixels});
  }
  return tally.Report();
}

absl::Status CheckBaseModel(const DigitsReport& report) {
  bool fit = report.reward >= 0.40 && report.reward <= 0.62 && report.speckle <= 0.03;
  for (const double accuracy : report.digit_accuracy) fit = fit && accuracy >= 0.45;
  if (fit) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "the model is not fit to ship (wanted: each digit right in .45 or more, reward .40 to .62, "
      "speckle .03 or less): digits %.3f %.3f %.3f, reward %.3f, strict %.3f, speckle %.4f",
      report.digit_accuracy[0], report.digit_accuracy[1], report.digit_accuracy[2], report.reward,
      report.strict, report.speckle));
}

}  // namespace oxbow::task
