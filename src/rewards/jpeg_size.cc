// SPDX-License-Identifier: Apache-2.0
#include "rewards/jpeg_size.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "io/image.h"
#include "rewards/picture_check.h"

namespace oxbow::rewards {
namespace {

constexpr double kSizeMax = 1e6;  // 1 GB: more than any picture that a server takes.
constexpr double kDivisor = 500;

class JpegSize final : public reward::PictureScorer {
 public:
  JpegSize(reward::RewardFacts facts, double factor)
      : PictureScorer(std::move(facts)), factor_(factor) {}

  absl::StatusOr<reward::Score> ScorePicture(std::string_view /*prompt*/,
                                             std::string_view /*metadata_json*/,
                                             const Image8& image) const override {
    OXBOW_RETURN_IF_ERROR(CheckPicture(image, facts().name));
    return reward::Score{.value = factor_ * io::JpegKilobytes(image)};
  }

 private:
  const double factor_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<reward::Scorer>> MakeJpegSize(const std::string& variant) {
  reward::RewardFacts facts{.name = "jpeg_size",
                            .value_max = kSizeMax,
                            .help = "kB of the picture as a JPEG of quality 95",
                            .identity = "jpeg_size/1 size"};
  if (variant.empty() || variant == "size") {
    return std::make_unique<JpegSize>(std::move(facts), 1);
  }
  if (variant != "compressibility") {
    return absl::InvalidArgumentError(
        absl::StrCat("variant is size or compressibility, got ", variant));
  }
  facts.value_min = -kSizeMax / kDivisor;
  facts.value_max = 0;
  facts.help = "-1/500 of the kB of the picture as a JPEG of quality 95";
  facts.identity = "jpeg_size/1 compressibility";
  return std::make_unique<JpegSize>(std::move(facts), -1 / kDivisor);
}

}  // namespace oxbow::rewards
