// SPDX-License-Identifier: Apache-2.0
#include "services/reward/scorer_panel.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/status_macros.h"
#include "core/reward/shown_items.h"
#include "services/reward/scorer_table.h"

namespace oxbow::reward {
namespace {

// With its size, so that no two lists of parts are the same text.
void AppendPart(std::string& text, std::string_view part) {
  absl::StrAppend(&text, part.size(), ":");
  text.append(part);
}

std::string ChecksumOf(const Image8& frame) {
  return Checksum128({reinterpret_cast<const char*>(frame.pixels.data()), frame.pixels.size()});
}

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

CachedScorer::CachedScorer(std::unique_ptr<Scorer> scorer, size_t items_max)
    : scorer_(std::move(scorer)), items_max_(items_max) {
  OXBOW_CHECK(items_max > 0 && !scorer_->facts().groupwise) << scorer_->facts().name;
}

CachedScorer::Key CachedScorer::KeyOf(const Item& item) const {
  std::string text;
  AppendPart(text, facts().identity);
  AppendPart(text, item.prompt);
  AppendPart(text, item.metadata_json);
  AppendPart(text, item.is_video() ? "video" : "picture");
  absl::StrAppend(&text, item.frames_every,
                  ":");  // The same frames may be those of a longer video.
  for (const Image8& frame : item.frames) {
    absl::StrAppend(&text, frame.width, "x", frame.height, "x", frame.channels, ":");
    text.append(ChecksumOf(frame));
  }
  return Checksum128(text);
}

std::optional<Score> CachedScorer::Find(const Key& key) {
  absl::MutexLock lock(&mutex_);
  const auto place = places_.find(key);
  if (place == places_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, place->second);
  return place->second->second;
}

void CachedScorer::Keep(const Key& key, const Score& score) {
  absl::MutexLock lock(&mutex_);
  if (places_.contains(key)) return;  // Another batch had the same item.
  entries_.emplace_front(key, score);
  entries_.front().second.cached = true;
  places_[key] = entries_.begin();
  if (entries_.size() <= items_max_) return;
  places_.erase(entries_.back().first);
  entries_.pop_back();
}

std::vector<absl::StatusOr<Score>> CachedScorer::ScoreBatch(absl::Span<const Item> items) {
  std::vector<absl::StatusOr<Score>> scores(items.size(), absl::UnknownError("not scored"));
  std::map<Key, std::vector<size_t>> wanted;  // Places of equal items.
  std::vector<Item> misses;
  std::vector<const std::vector<size_t>*> places;  // By miss.
  std::vector<Key> keys;
  for (size_t i = 0; i < items.size(); ++i) {
    const Key key = KeyOf(items[i]);
    if (std::optional<Score> kept = Find(key)) {
      scores[i] = *std::move(kept);
      continue;
    }
    std::vector<size_t>& equal = wanted[key];
    equal.push_back(i);
    if (equal.size() > 1) continue;
    misses.push_back(items[i]);
    places.push_back(&equal);
    keys.push_back(key);
  }
  if (misses.empty()) return scores;
  const std::vector<absl::StatusOr<Score>> made = scorer_->ScoreBatch(misses);
  OXBOW_CHECK(made.size() == misses.size()) << facts().name << ": " << made.size();
  for (size_t miss = 0; miss < misses.size(); ++miss) {
    if (made[miss].ok()) Keep(keys[miss], *made[miss]);
    for (const size_t i : *places[miss]) scores[i] = made[miss];
  }
  return scores;
}

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
