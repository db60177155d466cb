// SPDX-License-Identifier: Apache-2.0
#include "rewards/picture_guards.h"

#include <utility>

#include "base/status_macros.h"
#include "core/reward/picture_statistics.h"
#include "rewards/picture_check.h"

namespace oxbow::rewards {
namespace {

using Statistic = double (*)(const Image8& image);

// A number of the picture alone, whatever the prompt.
class PictureGuard final : public reward::PictureScorer {
 public:
  PictureGuard(reward::RewardFacts facts, Statistic statistic)
      : PictureScorer(std::move(facts)), statistic_(statistic) {}

  absl::StatusOr<reward::Score> ScorePicture(std::string_view /*prompt*/,
                                             std::string_view /*metadata_json*/,
                                             const Image8& image) const override {
    OXBOW_RETURN_IF_ERROR(CheckPicture(image, facts().name));
    return reward::Score{.value = statistic_(image)};
  }

 private:
  const Statistic statistic_;
};

}  // namespace

std::unique_ptr<reward::Scorer> MakeBrightness() {
  return std::make_unique<PictureGuard>(
      reward::RewardFacts{
          .name = "brightness", .help = "mean luma of the picture", .identity = "brightness/1"},
      reward::Brightness);
}

std::unique_ptr<reward::Scorer> MakeEdgeDensity() {
  return std::make_unique<PictureGuard>(reward::RewardFacts{.name = "edge_density",
                                                            .help = "share of pixels at an edge",
                                                            .identity = "edge_density/1"},
                                        reward::EdgeDensity);
}

std::unique_ptr<reward::Scorer> MakeColourEntropy() {
  return std::make_unique<PictureGuard>(
      reward::RewardFacts{.name = "colour_entropy",
                          .value_max = 9,
                          .help = "entropy of the colours in bits, 8 levels per channel",
                          .identity = "colour_entropy/1"},
      reward::ColourEntropy);
}

}  // namespace oxbow::rewards
