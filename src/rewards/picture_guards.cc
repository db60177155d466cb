// SPDX-License-Identifier: Apache-2.0
#include "rewards/picture_guards.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/reward/picture_statistics.h"
#include "io/image.h"

namespace oxbow::rewards {
namespace {

using Statistic = std::function<double(const Image8& image)>;

// A number of the picture alone, whatever the prompt.
class PictureGuard final : public reward::PictureScorer {
 public:
  PictureGuard(reward::RewardFacts facts, Statistic statistic)
      : PictureScorer(std::move(facts)), statistic_(std::move(statistic)) {}

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
  double (*statistic)(const Image8& image);
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

constexpr double kSizeMax = 1e6;  // 1 GB: more than any picture that a server takes.
constexpr double kDivisor = 500;

}  // namespace

std::unique_ptr<reward::Scorer> MakeBrightness() { return Make(kGuards[0]); }
std::unique_ptr<reward::Scorer> MakeEdgeDensity() { return Make(kGuards[1]); }
std::unique_ptr<reward::Scorer> MakeColourEntropy() { return Make(kGuards[2]); }

bool DescribesPictures(std::string_view reward) {
  return std::any_of(kGuards.begin(), kGuards.end(),
                     [&](const Guard& guard) { return reward == guard.name; });
}

absl::Status CheckPicture(const Image8& image, const std::string& reward) {
  if (io::IsValid(image) && image.width <= io::kJpegSideMax && image.height <= io::kJpegSideMax) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(reward, " takes no such picture: ", image.width,
                                                 " x ", image.height, ", ", image.channels,
                                                 " channels, ", image.pixels.size(), " bytes"));
}

absl::StatusOr<std::unique_ptr<reward::Scorer>> MakeJpegSize(const std::string& variant) {
  reward::RewardFacts facts{.name = "jpeg_size",
                            .value_max = kSizeMax,
                            .help = "kB of the picture as a JPEG of quality 95",
                            .identity = "jpeg_size/1 size"};
  if (variant.empty() || variant == "size") {
    return std::make_unique<PictureGuard>(std::move(facts), io::JpegKilobytes);
  }
  if (variant != "compressibility") {
    return absl::InvalidArgumentError(
        absl::StrCat("variant is size or compressibility, got ", variant));
  }
  facts.value_min = -kSizeMax / kDivisor;
  facts.value_max = 0;
  facts.help = "-1/500 of the kB of the picture as a JPEG of quality 95";
  facts.identity = "jpeg_size/1 compressibility";
  return std::make_unique<PictureGuard>(std::move(facts), [](const Image8& image) {
    return -1 / kDivisor * io::JpegKilobytes(image);
  });
}

}  // namespace oxbow::rewards
