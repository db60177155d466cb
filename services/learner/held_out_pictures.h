// SPDX-License-Identifier: Apache-2.0
// The pictures of an evaluation: held-out prompts drawn by the plain ODE. A picture may be a video.
// Its size may be another than that of training. Every evaluation starts from the same noise, so a
// picture depends on the weights and on its place alone.
//
// The ranks of a learner draw a share each. All ranks have the same weights and prompts. Or workers
// draw them by leases: the same batches, with the same keys.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/flow/dynamics.h"
#include "core/flow/sampler.h"
#include "core/model/image_decoder.h"
#include "core/model/velocity_model.h"
#include "core/parallel/share.h"
#include "oxbow/v1/coordinator.pb.h"
#include "services/learner/conditioning_cache.h"

namespace oxbow::learner {

// Held-out pictures start from noises of their own: the group of prompt i is this plus i. Groups of
// training count from 0.
inline constexpr uint64_t kEvaluationGroups = uint64_t{1} << 63;

// Owned by the thread that owns torch.
class HeldOutPictures {
 public:
  struct Options {
    uint32_t images = 128;
    std::vector<double> sigmas;  // The ODE's noise levels.
    flow::SolverKind solver = flow::SolverKind::kEuler;
    std::vector<int64_t> latent_shape;
    int64_t at_once = 64;  // Samples that are drawn together; changes no result.
    // Shares are whole batches of `at_once`: where a row's bits depend on the rows beside it.
    bool whole_batches = false;
    int64_t leased_together = 64;  // Pictures of a lease; `at_once` with whole batches.
    uint64_t seed = 0;
    at::Device device = at::kCPU;  // Where the network is.
  };
  using Frames = std::vector<Image8>;  // Frames of one picture.
  // Gets the picture of a place among all of them. An error ends the drawing.
  using Take = std::function<absl::Status(size_t place, Frames frames)>;

  // `prompts`: held out, not empty; taken in turn until `images` are drawn.
  HeldOutPictures(Options options, std::vector<v1::Prompt> prompts, ConditioningCache& conditioning,
                  const model::ImageDecoder& decoder);

  // The places that each rank draws, by rank; rank 0 always draws some.
  std::vector<parallel::Share> SharesOf(int ranks) const;

  // Draws the pictures of a share, in order. Asks `ended` before each forward pass: once it is true
  // nothing more is computed, and the answer is kCancelled.
  absl::Status Draw(const model::VelocityModel& model, const parallel::Share& share,
                    const std::function<bool()>& ended, const Take& take) const;

  // All pictures as leases, without the weights.
  struct Offered {
    std::vector<v1::Lease::Pictures> leases;
    // Workers are given the conditioning as long as somebody holds it.
    std::vector<std::shared_ptr<const std::string>> conditioning;
  };
  absl::StatusOr<Offered> Offer() const;

  const std::vector<v1::Prompt>& prompts() const { return prompts_; }
  size_t count() const { return options_.images; }
  // The key that the noise of a place is drawn from.
  flow::NoiseKey KeyOf(size_t place) const;

 private:
  const v1::Prompt& PromptOf(size_t place) const { return prompts_[place % prompts_.size()]; }

  const Options options_;
  const std::vector<v1::Prompt> prompts_;
  ConditioningCache& conditioning_;
  const model::ImageDecoder& decoder_;
};

}  // namespace oxbow::learner
