#include "tasks/pretraining/pretraining.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/philox.h"
#include "base/status_macros.h"
#include "core/model/image_decoder.h"
#include "core/model/image_sampler.h"
#include "core/model/initial_weights.h"
#include "core/model/text_conditioning.h"
#include "core/rl/adamw.h"

namespace oxbow::tasks {
namespace {

// The weights of one network, with their optimiser and running average.
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

double DecayFactor(const PretrainingOptions& options, int64_t step) {
  const auto steps = static_cast<double>(options.steps);
  const double decay_start = steps * (1 - options.decay_share);
  const double into = (static_cast<double>(step) - decay_start) / (steps - decay_start);
  return 1 - (1 - options.decay_to) * std::clamp(into, 0.0, 1.0);
}

struct Pretraining::Impl {
  Impl(PretrainingOptions o, const TaskTensors& w, const model::NamedTensors& transformer_tensors,
       const model::NamedTensors& text_tensors)
      : options(std::move(o)),
        task(w),
        transformer(OptimizerOptions(options), transformer_tensors),
        text(OptimizerOptions(options), text_tensors) {}

  at::Tensor Loss() const;

  const PretrainingOptions options;
  const TaskTensors& task;
  model::NamedTensors frozen;  // Holds the position table.
  Trained transformer;
  Trained text;
  std::unique_ptr<model::VelocityModel> velocity_model;
  std::unique_ptr<model::TextConditioning> conditioning;
  int64_t step = 0;
};

absl::StatusOr<std::unique_ptr<Pretraining>> Pretraining::Create(PretrainingOptions options,
                                                                 const TaskTensors& task) {
  const uint64_t seed = options.batch.seed;
  RandomStream transformer_random({.seed = seed, .group = 0, .step = kWeightInit});
  RandomStream text_random({.seed = seed, .group = 1, .step = kWeightInit});
  const model::Sd3Params transformer_params = task.transformer();
  const model::ClipTextParams text_params = task.text();
  model::NamedTensors transformer =
      model::InitialSd3Weights(transformer_params, transformer_random);
  model::NamedTensors frozen;
  frozen.insert(transformer.extract(model::kSd3PositionTable));
  const model::NamedTensors text =
      model::InitialClipTextWeights(text_params, options.embedding_std, text_random);
  auto impl = std::make_unique<Impl>(std::move(options), task, transformer, text);
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
  const TrainingTensors batch = task.Batch(options.batch, step);
  const at::Tensor noise = at::empty_like(batch.images);
  RandomStream random(
      {.seed = options.batch.seed, .group = static_cast<uint64_t>(step), .step = kInitialLatent});
  random.FillNormal({noise.data_ptr<float>(), static_cast<size_t>(noise.numel())});
  const at::Tensor t = batch.times.view({-1, 1, 1, 1});
  const at::Tensor x = (1 - t) * batch.images + t * noise;
  const at::Tensor velocity = velocity_model->Velocity(
      x, batch.times, model::ComposeSingleClip(conditioning->Encode({batch.ids})));
  return (velocity - (noise - batch.images)).square().mean();
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

absl::StatusOr<std::vector<Measure>> EvaluatePretrained(
    const TaskTensors& task, const model::NamedTensors& transformer,
    const model::NamedTensors& text, const std::vector<std::string>& prompts, int per_prompt,
    const std::vector<double>& sigmas, uint64_t seed) {
  const at::NoGradGuard no_grad;
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<model::VelocityModel> velocity_model,
                         model::MakeSd3Transformer(task.transformer(), transformer));
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<model::ClipTextEncoder> encoder,
                         model::MakeClipTextEncoder(task.text(), text));
  OXBOW_ASSIGN_OR_RETURN(const at::Tensor ids, task.TokenIds(prompts));
  const auto conditioning = model::MakeSingleClipConditioning(std::move(encoder));
  const ImageFormat format = task.synthetic_task().format();
  const at::Tensor images = model::SampleImages(
      *velocity_model, *model::MakePixelDecoder(), model::OdeSpec(sigmas),
      model::RequestsFor(model::ComposeSingleClip(conditioning->Encode({ids})), per_prompt, seed),
      {format.channels, format.height, format.width});
  OXBOW_CHECK(images.is_contiguous()) << "images are read as bytes";
  const std::unique_ptr<TaskReport> report = task.synthetic_task().NewReport();
  const size_t bytes = static_cast<size_t>(images[0].numel());
  const auto* pixels = images.data_ptr<uint8_t>();
  for (int64_t i = 0; i < images.size(0); ++i) {
    OXBOW_RETURN_IF_ERROR(report->Add(prompts[i / per_prompt], {pixels + i * bytes, bytes}));
  }
  return report->Report();
}

}  // namespace oxbow::tasks
