// SPDX-License-Identifier: Apache-2.0
#include "rewards/clipscore.h"

#include <algorithm>
#include <string>
#include <utility>

#include "io/prompts/text_sides.h"
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
  std::string (*read)(const std::string& prompt);
};

// Their tokenizer is CLIP's first one, which cleans.
std::string Depicted(const std::string& prompt) {
  return io::CleanedPrompt("A photo depicts " + prompt);
}

Convention ConventionOf(ClipScoreVariant variant, double scale) {
  switch (variant) {
    case ClipScoreVariant::kFlowGrpo:
      return {"clipscore/flow_grpo/1",
              "CLIPScore: exp(logit_scale) cos(prompt, image) / 30",
              scale / 30,
              -scale / 30,
              ClipInput::kBilinearCrop,
              nullptr};
    case ClipScoreVariant::kFlowFactory:
      return {"clipscore/flow_factory/1",
              "CLIPScore: cos(prompt, image)",
              1,
              -1,
              ClipInput::kProcessor,
              nullptr};
    case ClipScoreVariant::kHessel:
      break;
  }
  return {"clipscore/hessel/2",
          "CLIPScore: 2.5 max(cos(\"A photo depicts \" + prompt, image), 0)",
          2.5,
          0,
          ClipInput::kProcessor,
          Depicted};
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
    std::vector<double> values = Cosines(items, convention_.input, convention_.read);
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
