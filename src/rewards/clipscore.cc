// SPDX-License-Identifier: Apache-2.0
#include "rewards/clipscore.h"

#include <algorithm>
#include <utility>

#include "rewards/batch_scorer.h"

namespace oxbow::rewards {
namespace {

// value = max(factor cos, minimum)
struct Convention {
  const char* identity;
  const char* help;
  double factor;
  double minimum;
  ClipInput input;
  const char* prefix;
};

Convention ConventionOf(ClipScoreVariant variant, double scale) {
  switch (variant) {
    case ClipScoreVariant::kFlowGrpo:
      return {"clipscore/flow_grpo/1",
              "CLIPScore: exp(logit_scale) cos(prompt, image) / 30",
              scale / 30,
              -scale / 30,
              ClipInput::kBilinearCrop,
              ""};
    case ClipScoreVariant::kFlowFactory:
      return {"clipscore/flow_factory/1",
              "CLIPScore: cos(prompt, image)",
              1,
              -1,
              ClipInput::kProcessor,
              ""};
    case ClipScoreVariant::kHessel:
      break;
  }
  return {"clipscore/hessel/1",
          "CLIPScore: 2.5 max(cos(\"A photo depicts \" + prompt, image), 0)",
          2.5,
          0,
          ClipInput::kProcessor,
          "A photo depicts "};
}

class ClipScore final : public ClipScorer {
 public:
  ClipScore(const Convention& convention, std::shared_ptr<ClipTowers> towers)
      : ClipScorer({.name = "clipscore",
                    .value_min = convention.minimum,
                    .value_max = convention.factor,
                    .help = convention.help,
                    .identity = convention.identity},
                   std::move(towers)),
        convention_(convention) {}

 private:
  absl::StatusOr<std::vector<double>> Values(
      absl::Span<const reward::Item* const> items) const override {
    std::vector<double> values = Cosines(items, convention_.input, convention_.prefix);
    for (double& value : values) value = std::max(convention_.factor * value, convention_.minimum);
    return values;
  }

  const Convention convention_;
};

}  // namespace

std::unique_ptr<reward::Scorer> MakeClipScore(std::shared_ptr<ClipTowers> towers,
                                              ClipScoreVariant variant) {
  const Convention convention = ConventionOf(variant, towers->scale());
  return std::make_unique<ClipScore>(convention, std::move(towers));
}

}  // namespace oxbow::rewards
