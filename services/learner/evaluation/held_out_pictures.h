// SPDX-License-Identifier: Apache-2.0
// The pictures of an evaluation: held-out prompts drawn by the plain ODE, by workers. A picture may
// be a video. Every evaluation starts from the same noise, so a picture depends on the weights and
// on its place alone. And the numbers that describe them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/image8.h"
#include "core/flow/sampler.h"
#include "oxbow/v1/config.pb.h"
#include "oxbow/v1/coordinator.pb.h"
#include "services/learner/plan/conditioning_cache.h"

namespace oxbow::learner {

// Held-out pictures start from noises of their own: the group of prompt i is this plus i. Groups of
// training count from 0.
inline constexpr uint64_t kEvaluationGroups = uint64_t{1} << 63;

// The key that the noise of a place is drawn from. Picture i shows prompt i mod `prompts`; its key
// names prompt and repetition, never the batch.
flow::NoiseKey HeldOutKeyOf(uint64_t run_seed, size_t place, size_t prompts);

// `images` pictures of these prompts, which are taken in turn, as leases without the weights.
struct HeldOutPictures {
  std::vector<v1::Lease::Pictures> leases;
  // Workers are given the conditioning as long as somebody holds it.
  std::vector<std::shared_ptr<const std::string>> conditioning;

  // `together`: pictures of a lease, which a worker draws as one batch.
  static absl::StatusOr<HeldOutPictures> Of(const std::vector<v1::Prompt>& prompts, size_t images,
                                            size_t together, ConditioningCache& conditioning);
};

using Pictures = std::vector<std::vector<Image8>>;  // The frames of each.

// Adds numbers that describe the pictures themselves, whatever a reward says of them. Where a clean
// picture is black and white, by the task of the run's rewards, grey is dust. Any other picture may
// be a photograph: light and colour, fine detail and sharpness say whether it looks like one
// (core/reward/picture_statistics.h).
//
// They are eval/speckle_mean, or eval/saturated_share, fine_detail and sharpness with their spreads
// over the pictures. Of a video four frames are looked at. Requires a picture.
void AddPictureNumbers(const v1::RewardConfig& reward, const Pictures& pictures,
                       std::map<std::string, double>& metrics);

inline constexpr int kSmallSide = 32;
inline constexpr size_t kSmallPicturesMax = 256;

// The first pictures at 32 x 32 pixels, the middle frame of a video.
std::vector<Image8> SmallPictures(const Pictures& pictures);

// How far held-out pictures are from those of step 0, the base model's, which were drawn from the
// same noise. The small pictures of step 0 are kept over a resume:
//
//   samples/base_1a2b3c4d.png   squares of 32 pixels in rows of 16, in the order of the pictures;
//                               the number is the CRC-32C of their prompts, a line each
//
// Held-out prompts may change at a resume; then there is nothing to compare with.
class BasePictures {
 public:
  explicit BasePictures(std::filesystem::path run_dir) : run_dir_(std::move(run_dir)) {}

  // The mean distance of `small` (SmallPictures, of these prompts) from step 0's, by the mean
  // distance of step 0's to one another: 0 of the same pictures, 1 of unrelated ones. At step 0
  // they are stored first. Nothing without such pictures of step 0, or if all of them are alike.
  std::optional<double> DistanceAt(uint64_t step, const std::vector<std::string>& prompts,
                                   const std::vector<Image8>& small);

 private:
  const std::filesystem::path run_dir_;
  std::string identity_;      // That of `base_`; empty: nothing was looked for.
  std::vector<Image8> base_;  // Empty: there are none of it.
};

}  // namespace oxbow::learner
