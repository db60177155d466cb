#include "tasks/compose_scorer.h"

#include <span>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tasks/compose.h"
#include "tasks/compose_reading.h"

namespace oxbow::reward {
namespace {

absl::StatusOr<tasks::SceneCredit> CreditOf(const std::string& prompt_text, const Image8& image) {
  OXBOW_ASSIGN_OR_RETURN(const tasks::Scene wanted, tasks::ParseScenePrompt(prompt_text));
  if (image.width != tasks::kComposeSide || image.height != tasks::kComposeSide ||
      image.channels != tasks::kComposeChannels ||
      image.pixels.size() != tasks::kComposePixels * tasks::kComposeChannels) {
    return absl::InvalidArgumentError(
        absl::StrCat("image is not in colour of 16 x 16: ", image.width, " x ", image.height, ", ",
                     image.channels, " channels, ", image.pixels.size(), " bytes"));
  }
  return tasks::CreditOf(tasks::ReadCompose(image.pixels), wanted);
}

class Compose final : public Scorer {
 public:
  std::string name() const override { return "compose"; }
  double value_min() const override { return 0; }
  double value_max() const override { return 1; }
  std::string help() const override {
    return "mean of four parts: two objects, their shapes, their colours, their relation";
  }
  absl::StatusOr<double> Score(const std::string& prompt_text, const std::string& /*metadata*/,
                               const Image8& image) const override {
    OXBOW_ASSIGN_OR_RETURN(const tasks::SceneCredit credit, CreditOf(prompt_text, image));
    return credit.reward();
  }
};

class ComposeStrict final : public Scorer {
 public:
  std::string name() const override { return "compose_strict"; }
  double value_min() const override { return 0; }
  double value_max() const override { return 1; }
  std::string help() const override {
    return "1 if exactly the two objects stand as asked, else 0";
  }
  absl::StatusOr<double> Score(const std::string& prompt_text, const std::string& /*metadata*/,
                               const Image8& image) const override {
    OXBOW_ASSIGN_OR_RETURN(const tasks::SceneCredit credit, CreditOf(prompt_text, image));
    return credit.strict() ? 1.0 : 0.0;
  }
};

}  // namespace

std::unique_ptr<Scorer> MakeCompose() { return std::make_unique<Compose>(); }
std::unique_ptr<Scorer> MakeComposeStrict() { return std::make_unique<ComposeStrict>(); }

}  // namespace oxbow::reward
