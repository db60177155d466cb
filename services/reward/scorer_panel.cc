#include "services/reward/scorer_panel.h"

#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "services/reward/scorer_table.h"

namespace oxbow::reward {

absl::StatusOr<ScorerPanel> ScorerPanel::Create(const std::vector<std::string>& names) {
  if (names.empty()) return absl::InvalidArgumentError("no reward is named: give at least one");
  std::vector<std::unique_ptr<Scorer>> scorers;
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (!seen.insert(name).second) {
      return absl::InvalidArgumentError(absl::StrCat("reward is named twice: ", name));
    }
    OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<Scorer> scorer, MakeScorer(name));
    scorers.push_back(std::move(scorer));
  }
  return ScorerPanel(std::move(scorers));
}

ScorerPanel::ScorerPanel(std::vector<std::unique_ptr<Scorer>> scorers)
    : scorers_(std::move(scorers)) {
  OXBOW_CHECK(!scorers_.empty()) << "panel without scorers";
}

absl::StatusOr<std::vector<const Scorer*>> ScorerPanel::Select(
    const std::vector<std::string>& names) const {
  std::vector<const Scorer*> selected;
  if (names.empty()) {
    for (const auto& scorer : scorers_) selected.push_back(scorer.get());
    return selected;
  }
  for (const std::string& name : names) {
    const size_t before = selected.size();
    for (const auto& scorer : scorers_) {
      if (scorer->name() == name) selected.push_back(scorer.get());
    }
    if (selected.size() == before) {
      return absl::NotFoundError(absl::StrCat(
          "this server has no such reward (start it with --rewards): ", name.substr(0, 80)));
    }
  }
  return selected;
}

absl::Status Validate(const Image8& image) {
  const auto side_fits = [](int side) { return side >= 1 && side <= kImageSideMax; };
  if (!side_fits(image.width) || !side_fits(image.height)) {
    return absl::InvalidArgumentError(absl::StrCat("image side is not in 1..", kImageSideMax, ": ",
                                                   image.width, " x ", image.height));
  }
  if (image.channels != 1 && image.channels != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("image has neither 1 nor 3 channels: ", image.channels));
  }
  const uint64_t bytes = static_cast<uint64_t>(image.width) * image.height * image.channels;
  if (image.pixels.size() != bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "image has other bytes than its size says: ", image.pixels.size(), " for ", bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> ScoreOne(const Scorer& scorer, const std::string& prompt_text,
                                const std::string& prompt_metadata_json, const Image8& image) {
  absl::StatusOr<double> score = scorer.Score(prompt_text, prompt_metadata_json, image);
  if (!score.ok()) return Annotate(score.status(), scorer.name());
  if (!std::isfinite(*score)) {
    return absl::InternalError(absl::StrCat(scorer.name(), ": score is not finite: ", *score));
  }
  return score;
}

}  // namespace oxbow::reward
