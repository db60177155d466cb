#include "rewards/hpsv2.h"

#include <utility>

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
                    .identity = "hpsv2/1"},
                   std::move(towers)) {}

 private:
  std::vector<double> Values(absl::Span<const reward::Item* const> items) const override {
    return Cosines(items, ClipInput::kBicubicPadded);
  }
};

}  // namespace

std::unique_ptr<reward::Scorer> MakeHpsv2(std::shared_ptr<ClipTowers> towers) {
  return std::make_unique<Hpsv2>(std::move(towers));
}

}  // namespace oxbow::rewards
