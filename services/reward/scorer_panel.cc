// SPDX-License-Identifier: Apache-2.0
#include "services/reward/scorer_panel.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "core/reward/shown_items.h"
#include "services/reward/cached_scorer.h"
#include "services/reward/scorer_table.h"

namespace oxbow::reward {
namespace {

absl::StatusOr<Score> Checked(const RewardFacts& facts, absl::StatusOr<Score> score) {
  if (!score.ok()) return Annotate(score.status(), facts.name);
  if (!std::isfinite(score->value)) {
    return absl::InternalError(absl::StrCat(facts.name, ": score is not finite: ", score->value));
  }
  return score;
}

// The scorer, behind a cache if its entry or the scorer itself wants one.
absl::StatusOr<std::unique_ptr<Scorer>> WithCache(const v1::ScorerConfig& entry,
                                                  std::unique_ptr<Scorer> scorer) {
  const RewardFacts& facts = scorer->facts();
  if (facts.groupwise && entry.cache_items() > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "reward ", facts.name, " compares the items of a group: it takes no key `cache_items`"));
  }
  const uint32_t items = entry.cache_items() > 0 ? entry.cache_items() : facts.cache_items;
  if (items == 0 || facts.groupwise) return scorer;
  return std::make_unique<CachedScorer>(std::move(scorer), items);
}

}  // namespace

absl::StatusOr<ScorerPanel> ScorerPanel::Create(const std::vector<v1::ScorerConfig>& entries) {
  if (entries.empty()) return absl::InvalidArgumentError("no reward is named: give at least one");
  std::vector<std::unique_ptr<Scorer>> scorers;
  std::set<std::string> seen;
  for (const v1::ScorerConfig& entry : entries) {
    if (!seen.insert(entry.name()).second) {
      return absl::InvalidArgumentError(absl::StrCat("reward is named twice: ", entry.name()));
    }
    OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<Scorer> scorer, MakeScorer(entry));
    OXBOW_ASSIGN_OR_RETURN(scorer, WithCache(entry, std::move(scorer)));
    scorers.push_back(std::move(scorer));
  }
  return ScorerPanel(std::move(scorers));
}

ScorerPanel::ScorerPanel(std::vector<std::unique_ptr<Scorer>> scorers)
    : scorers_(std::move(scorers)) {
  OXBOW_CHECK(!scorers_.empty()) << "panel without scorers";
}

std::vector<std::string> ScorerPanel::names() const {
  std::vector<std::string> names;
  for (const auto& scorer : scorers_) names.push_back(scorer->facts().name);
  return names;
}

absl::StatusOr<std::vector<Scorer*>> ScorerPanel::Select(
    const std::vector<std::string>& names) const {
  std::vector<Scorer*> selected;
  if (names.empty()) {
    for (const auto& scorer : scorers_) selected.push_back(scorer.get());
    return selected;
  }
  for (const std::string& name : names) {
    const size_t before = selected.size();
    for (const auto& scorer : scorers_) {
      if (scorer->facts().name == name) selected.push_back(scorer.get());
    }
    if (selected.size() == before) {
      return absl::NotFoundError(absl::StrCat(
          "this server has no such reward (start it with --rewards): ", name.substr(0, 80)));
    }
  }
  return selected;
}

absl::Status ValidateShape(const Image8& image) {
  const auto side_fits = [](int side) { return side >= 1 && side <= kImageSideMax; };
  if (!side_fits(image.width) || !side_fits(image.height)) {
    return absl::InvalidArgumentError(absl::StrCat("image side is not in 1..", kImageSideMax, ": ",
                                                   image.width, " x ", image.height));
  }
  if (image.channels != 1 && image.channels != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("image has neither 1 nor 3 channels: ", image.channels));
  }
  return absl::OkStatus();
}

absl::Status Validate(const Image8& image) {
  OXBOW_RETURN_IF_ERROR(ValidateShape(image));
  const uint64_t bytes = static_cast<uint64_t>(image.width) * image.height * image.channels;
  if (image.pixels.size() != bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "image has other bytes than its size says: ", image.pixels.size(), " for ", bytes));
  }
  return absl::OkStatus();
}

std::vector<absl::StatusOr<Score>> ScoreItems(Scorer& scorer, absl::Span<const Item> items) {
  const RewardFacts& facts = scorer.facts();
  const ShownItems shown(facts, items);
  const absl::Span<const Item> all = shown.items();
  const size_t batch_max = facts.batch_max == 0 ? all.size() : facts.batch_max;
  std::vector<absl::StatusOr<Score>> scores;
  scores.reserve(all.size());
  for (size_t first = 0; first < all.size(); first += batch_max) {
    const absl::Span<const Item> batch = all.subspan(first, batch_max);
    std::vector<absl::StatusOr<Score>> results = scorer.ScoreBatch(batch);
    OXBOW_CHECK(results.size() == batch.size())
        << facts.name << ": " << results.size() << " results for " << batch.size();
    for (absl::StatusOr<Score>& result : results) {
      scores.push_back(Checked(facts, std::move(result)));
    }
  }
  return shown.Combine(std::move(scores));
}

}  // namespace oxbow::reward
