// SPDX-License-Identifier: Apache-2.0
#include "run/group_bytes.h"

#include "config/chosen_method.h"
#include "core/flow/window.h"
#include "io/picture_file.h"
#include "run/sampling_spec.h"

namespace oxbow::run {
namespace {

uint64_t LatentBytes(const v1::SamplingConfig& sampling, const std::vector<int64_t>& shape) {
  uint64_t bytes = sampling.storage() == v1::STORAGE_D_TYPE_F32 ? 4 : 2;
  for (const int64_t size : shape) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

}  // namespace

uint64_t LatentsMax(const v1::RunConfig& config) {
  const flow::SentLatents sent = SentLatentsOf(config);
  if (sent == flow::SentLatents::kFinal) return 1;
  const absl::StatusOr<flow::WindowPlan> window = WindowFromConfig(config.sampling());
  // A stochastic tail brings all latents from where its head ends.
  const bool tails =
      config.replay().fraction() > 0 && config.sampling().tail() == v1::TAIL_KIND_SDE;
  if (tails || !window.ok() || sent == flow::SentLatents::kToTheEnd)
    return config.sampling().steps() + 1;
  return static_cast<uint64_t>(flow::LongestSpan(*window)) + 1;
}

uint64_t GroupBytesMax(const v1::RunConfig& config, const std::vector<int64_t>& latent_shape) {
  return LatentBytes(config.sampling(), latent_shape) * LatentsMax(config) *
         config.batch().group_size();
}

uint64_t SinkBytesNeeded(const v1::RunConfig& config, const std::vector<int64_t>& latent_shape) {
  // Groups that are replaced are kept by their rank until the step is trained.
  const uint64_t groups =
      uint64_t{config.batch().groups()} * (config.off_policy().staleness_max() + 2) +
      config.batch().dynamic_sampling_max();
  return GroupBytesMax(config, latent_shape) * groups;
}

uint64_t EntryBytes(const v1::SamplingConfig& sampling, const std::vector<int64_t>& latent_shape,
                    uint64_t conditioning_bytes) {
  const uint64_t latents = uint64_t{sampling.sde_first()} + sampling.sde_count() + 1;
  return LatentBytes(sampling, latent_shape) * latents + conditioning_bytes +
         io::PreviewBytesAbout(sampling.width(), sampling.height(), sampling.frames());
}

}  // namespace oxbow::run
