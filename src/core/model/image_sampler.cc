// SPDX-License-Identifier: Apache-2.0
#include "core/model/image_sampler.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace oxbow::model {

flow::SamplingSpec OdeSpec(std::vector<double> sigmas, flow::SolverKind solver) {
  flow::SamplingSpec spec;
  spec.sde.assign(sigmas.size() - 1, false);
  spec.sigmas = std::move(sigmas);
  spec.dynamics = flow::DynamicsKind::kOde;
  spec.eta = 0;
  spec.solver = solver;
  return spec;
}

std::vector<ImageRequest> RequestsFor(const Conditioning& conditioning, int per_prompt,
                                      uint64_t seed) {
  std::vector<ImageRequest> requests;
  OXBOW_CHECK(!conditioning.empty()) << "conditioning of no parts";
  const int64_t prompts = conditioning.begin()->second.size(0);
  for (int64_t prompt = 0; prompt < prompts; ++prompt) {
    const Conditioning row = NarrowRows(conditioning, prompt, 1);
    for (int sample = 0; sample < per_prompt; ++sample) {
      requests.push_back({.conditioning = row,
                          .key = {.run_seed = seed,
                                  .group = static_cast<uint64_t>(prompt),
                                  .sample = static_cast<uint32_t>(sample)}});
    }
  }
  return requests;
}

int64_t SamplesAtOnce(at::IntArrayRef latent_shape) {
  constexpr int64_t kSamples = 64;
  constexpr int64_t kElements = 32768;
  if (latent_shape.size() < 4) return kSamples;
  return std::clamp(kElements / c10::multiply_integers(latent_shape), int64_t{1}, kSamples);
}

namespace {

// The final latents of the requests `first` .. `last` - 1.
at::Tensor Sampled(const VelocityModel& model, const flow::SamplingSpec& spec,
                   const std::vector<ImageRequest>& requests, at::IntArrayRef latent_shape,
                   size_t first, size_t last) {
  std::vector<flow::NoiseKey> keys;
  std::vector<Conditioning> rows;
  for (size_t i = first; i < last; ++i) {
    keys.push_back(requests[i].key);
    rows.push_back(requests[i].conditioning);
  }
  const Conditioning batch = ConcatRows(rows);
  const at::Device device = batch.begin()->second.device();
  const flow::Paths paths = flow::ContinuePaths(
      spec, keys, flow::DrawStarts(keys, latent_shape).to(device), /*first_step=*/0, at::kFloat,
      [&](const at::Tensor& x, const at::Tensor& sigma) {
        return model.Velocity(x, sigma, batch);
      });
  return paths.latents[paths.latents.size(0) - 1];
}

}  // namespace

std::vector<std::vector<Image8>> SampleFrames(const VelocityModel& model,
                                              const ImageDecoder& decoder,
                                              const flow::SamplingSpec& spec,
                                              const std::vector<ImageRequest>& requests,
                                              at::IntArrayRef latent_shape, int64_t batch_max) {
  OXBOW_CHECK(!requests.empty() && batch_max > 0) << requests.size() << " requests";
  const at::NoGradGuard no_grad;
  std::vector<std::vector<Image8>> samples;
  const auto step = static_cast<size_t>(batch_max);
  for (size_t first = 0; first < requests.size(); first += step) {
    const size_t last = std::min(first + step, requests.size());
    auto drawn = DecodeFrames(decoder, Sampled(model, spec, requests, latent_shape, first, last));
    for (std::vector<Image8>& frames : drawn) samples.push_back(std::move(frames));
  }
  return samples;
}

}  // namespace oxbow::model
