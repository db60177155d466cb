// SPDX-License-Identifier: Apache-2.0
#include "services/reward/cached_scorer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/checksum.h"

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

}  // namespace oxbow::reward
