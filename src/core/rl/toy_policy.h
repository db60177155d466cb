// A policy small enough for exact tests: v = x W1 + sigma w2 + tokens W3, one product per row.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <memory>

#include "base/philox.h"
#include "core/flow/sampler.h"
#include "core/model/policy.h"
#include "core/rl/experience.h"

namespace oxbow::rl {

inline constexpr int64_t kToyChannels = 1;
inline constexpr int64_t kToySide = 4;
inline constexpr int64_t kToyDims = kToyChannels * kToySide * kToySide;
inline constexpr int64_t kToyTokens = 3;

// Sums products over one axis of contiguous rows, so that a row's bits do not depend on the batch.
class ToyModel final : public model::VelocityModel {
 public:
  explicit ToyModel(const model::ParameterSet& parameters) : parameters_(parameters) {}

  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const model::Conditioning& conditioning) const override {
    const at::Tensor flat = x.flatten(1).unsqueeze(1);                // [B, 1, D]
    const at::Tensor mixed = (flat * parameters_.Get("mix")).sum(2);  // [B, D]
    const at::Tensor prompt =
        (conditioning.tokens.flatten(1).unsqueeze(1) * parameters_.Get("prompt")).sum(2);  // [B, D]
    return (mixed + prompt + sigma.unsqueeze(1) * parameters_.Get("level")).view(x.sizes());
  }

 private:
  const model::ParameterSet& parameters_;
};

inline at::Tensor ToyNormal(uint64_t seed, at::IntArrayRef shape, double scale) {
  at::Tensor out = at::empty(shape, at::kFloat);
  RandomStream({.seed = seed, .step = kWeightInit})
      .FillNormal(std::span<float>(out.data_ptr<float>(), static_cast<size_t>(out.numel())));
  return out * scale;
}

class ToyPolicy final : public model::Policy {
 public:
  explicit ToyPolicy(uint64_t seed = 1, bool has_old = false)
      : has_old_(has_old),
        weights_{{"mix", ToyNormal(seed, {kToyDims, kToyDims}, 0.1)},
                 {"prompt", ToyNormal(seed + 1, {kToyDims, kToyTokens}, 0.3)},
                 {"level", ToyNormal(seed + 2, {kToyDims}, 0.3)}},
        parameters_(weights_, true),
        reference_parameters_(weights_, false),
        ema_parameters_(weights_, false),
        old_parameters_(weights_, false) {}

  const model::VelocityModel& current() const override { return current_; }
  const model::VelocityModel& reference() const override { return reference_; }
  const model::VelocityModel& ema() const override { return ema_; }
  const model::VelocityModel& old() const override { return old_; }
  bool has_old() const override { return has_old_; }
  const model::VelocityModel& sampler() const override { return has_old_ ? old_ : current_; }
  model::ParameterSet& parameters() override { return parameters_; }
  model::ParameterSet& ema_parameters() override { return ema_parameters_; }
  model::ParameterSet& old_parameters() override { return old_parameters_; }
  model::ParameterSet& sampler_parameters() override {
    return has_old_ ? old_parameters_ : parameters_;
  }
  model::ParameterSet& reference_parameters() override { return reference_parameters_; }
  const model::NamedTensors& frozen() const override { return frozen_; }
  model::RowCount rows() const override {
    model::RowCount sum = current_.rows();
    return (sum += reference_.rows()) += old_.rows();
  }
  absl::Status Load(const model::NamedTensors&) override { return absl::OkStatus(); }

 private:
  const bool has_old_;
  const model::NamedTensors weights_;
  const model::NamedTensors frozen_;
  model::ParameterSet parameters_;
  model::ParameterSet reference_parameters_;
  model::ParameterSet ema_parameters_;
  model::ParameterSet old_parameters_;
  const ToyModel current_{parameters_};
  const ToyModel reference_{reference_parameters_};
  const ToyModel ema_{ema_parameters_};
  const ToyModel old_{old_parameters_};
};

// Draws one group under the policy as it is. Reward: minus the mean of the picture.
inline Group ToyGroup(const flow::SamplingSpec& spec, const model::VelocityModel& model,
                      uint64_t id, int size, uint64_t version) {
  const at::NoGradGuard no_grad;
  Group group{.id = GroupId(id), .prompt_id = PromptId(id % 3)};
  group.conditioning = {.tokens = ToyNormal(100 + id % 3, {1, 1, kToyTokens}, 1),
                        .pooled = at::zeros({1, 1}, at::kFloat)};
  std::vector<flow::NoiseKey> keys;
  for (int s = 0; s < size; ++s) keys.push_back({7, id, static_cast<uint32_t>(s)});
  const flow::Paths paths = flow::SamplePaths(
      spec, keys, {kToyChannels, kToySide, kToySide}, at::kFloat,
      [&](const at::Tensor& x, const at::Tensor& sigma) {
        return model.Velocity(x, sigma,
                              {.tokens = group.conditioning.tokens.expand({x.size(0), -1, -1}),
                               .pooled = group.conditioning.pooled.expand({x.size(0), -1})});
      });
  const auto steps = static_cast<size_t>(spec.steps());
  for (int s = 0; s < size; ++s) {
    Sample sample{.index = static_cast<uint32_t>(s), .latents = paths.latents.select(1, s).clone()};
    for (size_t i = 0; i < steps; ++i) {
      sample.log_prob.push_back(paths.log_prob[static_cast<int64_t>(i)][s].item<float>());
    }
    sample.sde = spec.sde;
    sample.behaviour_version.assign(steps, version);
    sample.reward = -sample.latents[-1].mean().item<double>();
    sample.rewards["toy"] = sample.reward;
    group.samples.push_back(std::move(sample));
  }
  return group;
}

}  // namespace oxbow::rl
