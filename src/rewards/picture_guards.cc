// SPDX-License-Identifier: Apache-2.0
#include "rewards/picture_guards.h"

#include <algorithm>
#include <array>
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

struct Guard {
  const char* name;
  double value_max;
  const char* help;
  const char* identity;
  Statistic statistic;
};

constexpr std::array<Guard, 3> kGuards = {{
    {"brightness", 1, "mean luma of the picture", "brightness/1", reward::Brightness},
    {"edge_density", 1, "share of pixels at an edge", "edge_density/1", reward::EdgeDensity},
    {"colour_entropy", 9, "entropy of the colours in bits, 8 levels per channel",
     "colour_entropy/1", reward::ColourEntropy},
}};

std::unique_ptr<reward::Scorer> Make(const Guard& guard) {
  return std::make_unique<PictureGuard>(reward::RewardFacts{.name = guard.name,
                                                            .value_max = guard.value_max,
                                                            .help = guard.help,
                                                            .identity = guard.identity},
                                        guard.statistic);
}

}  // namespace

std::unique_ptr<reward::Scorer> MakeBrightness() { return Make(kGuards[0]); }
std::unique_ptr<reward::Scorer> MakeEdgeDensity() { return Make(kGuards[1]); }
std::unique_ptr<reward::Scorer> MakeColourEntropy() { return Make(kGuards[2]); }

bool DescribesPictures(std::string_view reward) {
  return std::any_of(kGuards.begin(), kGuards.end(),
                     [&](const Guard& guard) { return reward == guard.name; });
}

}  // namespace oxbow::rewards
