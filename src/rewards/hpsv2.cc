// SPDX-License-Identifier: Apache-2.0
#include "rewards/hpsv2.h"

#include <utility>

#include "core/reward/html_text.h"
#include "rewards/clip_scorer.h"

namespace oxbow::rewards {
namespace {

class Hpsv2 final : public ClipScorer {
 public:
  explicit Hpsv2(std::shared_ptr<ClipTowers> towers)
      : ClipScorer({.name = "hpsv2",
                    .value_min = -1,
                    .value_max = 1,
                    .help = "HPSv2: cos(prompt, image)",
                    .identity = "hpsv2/2"},
                   std::move(towers)) {}

 private:
  absl::StatusOr<std::vector<double>> Values(
      absl::Span<const reward::Item* const> items) const override {
    std::vector<std::string> prompts;
    prompts.reserve(items.size());
    for (const reward::Item* const item : items) {
      prompts.push_back(reward::UnescapeHtml(reward::UnescapeHtml(item->prompt)));
    }
    return Cosines(prompts, items, ClipInput::kBicubicPadded);
  }
};

}  // namespace

std::unique_ptr<reward::Scorer> MakeHpsv2(std::shared_ptr<ClipTowers> towers) {
  return std::make_unique<Hpsv2>(std::move(towers));
}

}  // namespace oxbow::rewards
