#include "core/model/image_sampler.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

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

at::Tensor SampleImages(const VelocityModel& model, const ImageDecoder& decoder,
                        const flow::SamplingSpec& spec, const std::vector<ImageRequest>& requests,
                        at::IntArrayRef latent_shape, int64_t batch_max) {
  OXBOW_CHECK(!requests.empty() && batch_max > 0) << requests.size() << " requests";
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> images;
  const auto count = static_cast<int64_t>(requests.size());
  for (int64_t first = 0; first < count; first += batch_max) {
    const int64_t last = std::min(first + batch_max, count);
    std::vector<flow::NoiseKey> keys;
    std::vector<Conditioning> rows;
    for (int64_t i = first; i < last; ++i) {
      keys.push_back(requests[i].key);
      rows.push_back(requests[i].conditioning);
    }
    const Conditioning batch = ConcatRows(rows);
    const flow::Paths paths = flow::SamplePaths(spec, keys, latent_shape, at::kFloat,
                                                [&](const at::Tensor& x, const at::Tensor& sigma) {
                                                  return model.Velocity(x, sigma, batch);
                                                });
    images.push_back(decoder.Decode(paths.latents[paths.latents.size(0) - 1]));
  }
  return at::cat(images).contiguous();
}

Image8 ImageOf(const at::Tensor& images, int64_t index) {
  const at::Tensor image = images[index].contiguous();
  OXBOW_CHECK(image.scalar_type() == at::kByte && image.dim() == 3) << "images [B, H, W, C]";
  const uint8_t* const pixels = image.const_data_ptr<uint8_t>();
  return {.width = static_cast<int>(image.size(1)),
          .height = static_cast<int>(image.size(0)),
          .channels = static_cast<int>(image.size(2)),
          .pixels = {pixels, pixels + image.numel()}};
}

}  // namespace oxbow::model
