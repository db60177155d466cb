// SPDX-License-Identifier: Apache-2.0
#include "tasks/pretraining/pretraining.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/philox.h"
#include "base/status_macros.h"
#include "core/model/image_decoder.h"
#include "core/model/image_sampler.h"
#include "core/model/text_conditioning.h"
#include "core/model/velocity_model.h"
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
  Impl(PretrainingOptions o, const TaskTensors& t, const Networks& n, ComponentWeights weights)
      : options(std::move(o)), task(t), networks(n) {
    for (const std::string& name : networks.transformer->buffers()) {
      frozen.insert(weights.at(kTransformer).extract(name));
    }
    for (const auto& [component, tensors] : weights) {
      trained.try_emplace(component, OptimizerOptions(options), tensors);
    }
  }

  // The weights of every component as they train.
  ComponentWeights Bound() const;
  absl::StatusOr<at::Tensor> Loss() const;

  const PretrainingOptions options;
  const TaskTensors& task;
  const Networks& networks;
  model::NamedTensors frozen;  // The transformer's buffers.
  std::map<std::string, Trained> trained;
  std::unique_ptr<model::VelocityModel> velocity_model;
  std::unique_ptr<model::TextConditioning> conditioning;
  int64_t step = 0;
};

ComponentWeights Pretraining::Impl::Bound() const {
  ComponentWeights bound;
  for (const auto& [component, network] : trained) bound[component] = network.parameters.tensors();
  bound[kTransformer].insert(frozen.begin(), frozen.end());
  return bound;
}

absl::StatusOr<std::unique_ptr<Pretraining>> Pretraining::Create(PretrainingOptions options,
                                                                 const TaskTensors& task,
                                                                 const Networks& networks) {
  OXBOW_ASSIGN_OR_RETURN(ComponentWeights weights,
                         InitialWeights(networks, task, options.batch.seed, options.embedding_std));
  auto impl = std::make_unique<Impl>(std::move(options), task, networks, std::move(weights));
  const ComponentWeights bound = impl->Bound();
  OXBOW_ASSIGN_OR_RETURN(
      impl->velocity_model,
      networks.transformer->Make(bound.at(kTransformer), /*adapter=*/nullptr, /*execution=*/{}));
  OXBOW_ASSIGN_OR_RETURN(impl->conditioning, networks.text->Make(bound));
  return std::unique_ptr<Pretraining>(new Pretraining(std::move(impl)));
}

Pretraining::Pretraining(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pretraining::~Pretraining() = default;
int64_t Pretraining::steps_done() const { return impl_->step; }

absl::StatusOr<at::Tensor> Pretraining::Impl::Loss() const {
  const TrainingTensors batch = task.Batch(options.batch, step);
  const at::Tensor noise = at::empty_like(batch.images);
  RandomStream random(
      {.seed = options.batch.seed, .group = static_cast<uint64_t>(step), .step = kInitialLatent});
  random.FillNormal({noise.data_ptr<float>(), static_cast<size_t>(noise.numel())});
  std::vector<int64_t> per_row(batch.images.dim(), 1);
  per_row[0] = -1;
  const at::Tensor t = batch.times.view(per_row);
  const at::Tensor x = (1 - t) * batch.images + t * noise;
  OXBOW_ASSIGN_OR_RETURN(const std::vector<at::Tensor> ids,
                         networks.text->TokenIds(batch.captions));
  const at::Tensor velocity =
      velocity_model->Velocity(x, batch.times, networks.text->Compose(conditioning->Encode(ids)));
  return (velocity - (noise - batch.images)).square().mean();
}

absl::StatusOr<double> Pretraining::Step() {
  Impl& self = *impl_;
  for (auto& [component, network] : self.trained) network.parameters.ZeroGrad();
  OXBOW_ASSIGN_OR_RETURN(const at::Tensor loss, self.Loss());
  loss.backward();
  double squares = 0;
  for (auto& [component, network] : self.trained) squares += network.GradientSquares();
  const double norm = std::sqrt(squares);
  const double value = loss.item<double>();
  if (!std::isfinite(value) || !std::isfinite(norm)) {
    return absl::InternalError(
        absl::StrCat("pretraining diverged (try another seed or a lower learning rate): step ",
                     self.step, ", loss ", value, ", gradient norm ", norm));
  }
  const double scale = std::min(1.0, self.options.grad_norm_max / (norm + 1e-6));
  const double rate_factor = DecayFactor(self.options, self.step);
  for (auto& [component, network] : self.trained) {
    network.Update(scale, rate_factor, self.options.ema_decay);
  }
  ++self.step;
  return value;
}

ComponentWeights Pretraining::Weights() const {
  ComponentWeights weights;
  for (const auto& [component, network] : impl_->trained) {
    weights[component] = Copies(network.average.tensors());
  }
  weights[kTransformer].merge(Copies(impl_->frozen));
  return weights;
}

absl::StatusOr<std::vector<Measure>> EvaluatePretrained(
    const TaskTensors& task, const Networks& networks, const ComponentWeights& weights,
    const std::vector<std::string>& prompts, int per_prompt, const std::vector<double>& sigmas,
    uint64_t seed) {
  const at::NoGradGuard no_grad;
  OXBOW_ASSIGN_OR_RETURN(
      const std::unique_ptr<model::VelocityModel> velocity_model,
      networks.transformer->Make(weights.at(kTransformer), /*adapter=*/nullptr, /*execution=*/{}));
  OXBOW_ASSIGN_OR_RETURN(const auto conditioning, networks.text->Make(weights));
  OXBOW_ASSIGN_OR_RETURN(const std::vector<at::Tensor> ids, networks.text->TokenIds(prompts));
  const ImageFormat format = task.synthetic_task().format();
  std::vector<int64_t> latent_shape = {format.channels, format.height, format.width};
  if (format.frames != 0) latent_shape.insert(latent_shape.begin() + 1, format.frames);
  const std::vector<std::vector<Image8>> images = model::SampleFrames(
      *velocity_model, *model::MakePixelDecoder(), model::OdeSpec(sigmas),
      model::RequestsFor(networks.text->Compose(conditioning->Encode(ids)), per_prompt, seed),
      latent_shape);
  const std::unique_ptr<TaskReport> report = task.synthetic_task().NewReport();
  for (size_t i = 0; i < images.size(); ++i) {
    OXBOW_RETURN_IF_ERROR(report->Add(prompts[i / per_prompt], PixelsOf(images[i])));
  }
  return report->Report();
}

}  // namespace oxbow::tasks
