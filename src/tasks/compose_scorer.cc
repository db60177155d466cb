// SPDX-License-Identifier: Apache-2.0
#include "tasks/compose_scorer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tasks/compose.h"
#include "tasks/compose_reading.h"

namespace oxbow::reward {
namespace {

absl::StatusOr<tasks::SceneCredit> CreditOf(std::string_view prompt, const Image8& image) {
  OXBOW_ASSIGN_OR_RETURN(const tasks::Scene wanted, tasks::ParseScenePrompt(prompt));
  if (image.width != tasks::kComposeSide || image.height != tasks::kComposeSide ||
      image.channels != tasks::kComposeChannels ||
      image.pixels.size() != tasks::kComposePixels * tasks::kComposeChannels) {
    return absl::InvalidArgumentError(
        absl::StrCat("image is not in colour of 16 x 16: ", image.width, " x ", image.height, ", ",
                     image.channels, " channels, ", image.pixels.size(), " bytes"));
  }
  return tasks::CreditOf(tasks::ReadCompose(image.pixels), wanted);
}

using MeasureObjects = double (*)(const tasks::SceneCredit& credit);

class ComposeScorer final : public PictureScorer {
 public:
  ComposeScorer(RewardFacts facts, MeasureObjects measure)
      : PictureScorer(std::move(facts)), measure_(measure) {}

  absl::StatusOr<Score> ScorePicture(std::string_view prompt, std::string_view /*metadata_json*/,
                                     const Image8& image) const override {
    OXBOW_ASSIGN_OR_RETURN(const tasks::SceneCredit credit, CreditOf(prompt, image));
    return Score{.value = measure_(credit)};
  }

 private:
  const MeasureObjects measure_;
};

}  // namespace

std::unique_ptr<Scorer> MakeCompose() {
  return std::make_unique<ComposeScorer>(
      RewardFacts{
          .name = "compose",
          .help = "mean of four parts: two objects, their shapes, their colours, their relation",
          .identity = "compose/1"},
      [](const tasks::SceneCredit& credit) { return credit.reward(); });
}

std::unique_ptr<Scorer> MakeComposeStrict() {
  return std::make_unique<ComposeScorer>(
      RewardFacts{.name = "compose_strict",
                  .help = "1 if exactly the two objects stand as asked, else 0",
                  .identity = "compose_strict/1"},
      [](const tasks::SceneCredit& credit) { return credit.strict() ? 1.0 : 0.0; });
}

}  // namespace oxbow::reward
