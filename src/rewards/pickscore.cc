// SPDX-License-Identifier: Apache-2.0
#include "rewards/pickscore.h"

#include <utility>

#include "rewards/clip_scorer.h"

namespace oxbow::rewards {
namespace {

constexpr double kDivisor = 26;

class PickScore final : public ClipScorer {
 public:
  explicit PickScore(std::shared_ptr<ClipTowers> towers)
      : ClipScorer({.name = "pickscore",
                    .value_min = -towers->scale() / kDivisor,
                    .value_max = towers->scale() / kDivisor,
                    .help = "PickScore: exp(logit_scale) cos(prompt, image) / 26",
                    .identity = "pickscore/1"},
                   towers) {}

 private:
  absl::StatusOr<std::vector<double>> Values(
      absl::Span<const reward::Item* const> items) const override {
    std::vector<double> values = Cosines(items, ClipInput::kProcessor);
    for (double& value : values) value *= towers().scale() / kDivisor;
    return values;
  }
};

}  // namespace

std::unique_ptr<reward::Scorer> MakePickScore(std::shared_ptr<ClipTowers> towers) {
  return std::make_unique<PickScore>(std::move(towers));
}

}  // namespace oxbow::rewards
