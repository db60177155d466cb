// SPDX-License-Identifier: Apache-2.0
// A policy small enough for exact tests: v = x W1 + sigma w2 + tokens W3, one product per row.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/philox.h"
#include "core/flow/sampler.h"
#include "core/model/policy.h"
#include "core/rl/experience.h"

namespace oxbow::rl {

inline constexpr int64_t kToyChannels = 1;
inline constexpr int64_t kToySide = 4;
inline constexpr int64_t kToyDims = kToyChannels * kToySide * kToySide;
inline constexpr int64_t kToyTokens = 3;

inline at::Tensor ToyNormal(uint64_t seed, at::IntArrayRef shape, double scale) {
  at::Tensor out = at::empty(shape, at::kFloat);
  RandomStream({.seed = seed, .step = kWeightInit})
      .FillNormal(std::span<float>(out.data_ptr<float>(), static_cast<size_t>(out.numel())));
  return out * scale;
}

// Sums products over one axis of contiguous rows, so that a row's bits do not depend on the batch.
class ToyModel final : public model::VelocityModel {
 public:
  explicit ToyModel(model::NamedTensors weights) : weights_(std::move(weights)) {}

  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const model::Conditioning& conditioning) const override {
    const at::Tensor tokens = conditioning.at(model::kPromptTokens).flatten(1).unsqueeze(1);
    const at::Tensor flat = x.flatten(1).unsqueeze(1);                  // [B, 1, D]
    const at::Tensor mixed = (flat * weights_.at("mix")).sum(2);        // [B, D]
    const at::Tensor prompt = (tokens * weights_.at("prompt")).sum(2);  // [B, D]
    return (mixed + prompt + sigma.unsqueeze(1) * weights_.at("level")).view(x.sizes());
  }

 private:
  const model::NamedTensors weights_;
};

class ToyArchitecture final : public model::Architecture {
 public:
  const std::string& class_name() const override { return class_name_; }
  const model::LatentGeometry& latent() const override { return latent_; }
  const std::vector<model::ConditioningPart>& conditioning() const override { return parts_; }
  model::Shapes shapes() const override {
    return {
        {"mix", {kToyDims, kToyDims}}, {"prompt", {kToyDims, kToyTokens}}, {"level", {kToyDims}}};
  }
  model::LinearModules linears() const override { return {}; }
  const std::set<std::string>& buffers() const override { return buffers_; }
  uint64_t ActivationBytes(const model::Execution&, const model::ForwardSize&) const override {
    return 0;
  }
  absl::StatusOr<std::unique_ptr<model::VelocityModel>> Make(
      const model::NamedTensors& weights, const model::LoraAdapter*,
      const model::Execution&) const override {
    return std::make_unique<ToyModel>(weights);
  }

 private:
  const std::string class_name_ = "Toy";
  const model::LatentGeometry latent_{
      .channels = kToyChannels, .side = kToySide, .side_max = kToySide};
  const std::vector<model::ConditioningPart> parts_ = {
      {model::kPromptTokens, {model::kPromptLength, kToyTokens}}};
  const std::set<std::string> buffers_;
};

// With `on_host` its weights are offloaded (core/model/offloaded_weights.h).
inline model::Policy MadeToyPolicy(uint64_t seed, model::OldPolicy old, bool on_host) {
  auto policy =
      model::Policy::Create({.architecture = std::make_shared<ToyArchitecture>(),
                             .base = {{"mix", ToyNormal(seed, {kToyDims, kToyDims}, 0.1)},
                                      {"prompt", ToyNormal(seed + 1, {kToyDims, kToyTokens}, 0.3)},
                                      {"level", ToyNormal(seed + 2, {kToyDims}, 0.3)}},
                             .average_on_host = on_host,
                             .weights_on_host = on_host,
                             .old = old,
                             .checkpoint_activations = on_host});
  OXBOW_CHECK(policy.ok()) << policy.status().ToString();
  return std::move(**policy);
}

class ToyPolicy final : public model::Policy {
 public:
  explicit ToyPolicy(uint64_t seed = 1, model::OldPolicy old = model::OldPolicy::kNone,
                     bool on_host = false)
      : model::Policy(MadeToyPolicy(seed, old, on_host)) {}
};

// Draws one group under the policy as it is. Reward: minus the mean of the image.
inline Group ToyGroup(const flow::SamplingSpec& spec, const model::VelocityModel& model,
                      uint64_t id, int size, uint64_t version) {
  const at::NoGradGuard no_grad;
  Group group{.id = GroupId(id), .prompt_id = PromptId(id % 3)};
  group.conditioning = {{model::kPromptTokens, ToyNormal(100 + id % 3, {1, 1, kToyTokens}, 1)}};
  std::vector<flow::NoiseKey> keys;
  for (int s = 0; s < size; ++s) keys.push_back({7, id, static_cast<uint32_t>(s)});
  const flow::Paths paths = flow::SamplePaths(
      spec, keys, {kToyChannels, kToySide, kToySide}, at::kFloat,
      [&](const at::Tensor& x, const at::Tensor& sigma) {
        return model.Velocity(x, sigma, model::BroadcastRows(group.conditioning, x.size(0)));
      });
  const auto steps = static_cast<size_t>(spec.steps());
  for (int s = 0; s < size; ++s) {
    Trajectory trajectory{.index = static_cast<uint32_t>(s),
                          .latents = paths.latents.select(1, s).clone()};
    for (size_t i = 0; i < steps; ++i) {
      trajectory.log_prob.push_back(paths.log_prob[static_cast<int64_t>(i)][s].item<float>());
    }
    trajectory.sde = spec.sde;
    trajectory.behaviour_version.assign(steps, version);
    trajectory.reward = -trajectory.latents[-1].mean().item<double>();
    trajectory.rewards["toy"] = trajectory.reward;
    group.trajectories.push_back(std::move(trajectory));
  }
  return group;
}

}  // namespace oxbow::rl
