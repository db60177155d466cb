// SPDX-License-Identifier: Apache-2.0
#include "core/reward/shown_items.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace oxbow::reward {
namespace {

// OK if the scorer reads such an item.
absl::Status CheckMedium(const RewardFacts& facts, const Item& item) {
  if (item.is_video() ? facts.takes_videos() : facts.images) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(facts.name, " reads no ", item.is_video() ? "videos" : "pictures", ": ",
                   item.frames.size(), item.frames.size() > 1 ? " frames" : " frame"));
}

// Every which of the item's frames the scorer reads.
absl::StatusOr<size_t> StrideOf(const RewardFacts& facts, const Item& item) {
  if (!item.is_video()) return 1;
  const uint32_t read = std::max(1U, facts.frames_every);
  const uint32_t given = std::max(1U, item.frames_every);
  if (read % given == 0) return read / given;
  return absl::InvalidArgumentError(
      absl::StrCat(facts.name, " reads the frames 0, ", read, ", ", 2 * uint64_t{read},
                   ", ... of a video, and got 0, ", given, ", ", 2 * uint64_t{given}, ", ..."));
}

// The mean; notes in the order of time.
absl::StatusOr<Score> MeanOf(absl::Span<absl::StatusOr<Score>> scores) {
  Score mean{.value = 0, .note = {}, .cached = true};
  for (const absl::StatusOr<Score>& score : scores) {
    if (!score.ok()) return score.status();
    mean.value += score->value / static_cast<double>(scores.size());
    if (!score->note.empty()) {
      absl::StrAppend(&mean.note, mean.note.empty() ? "" : " | ", score->note);
    }
    mean.cached = mean.cached && score->cached;
  }
  return mean;
}

}  // namespace

ShownItems::ShownItems(const RewardFacts& facts, absl::Span<const Item> items) {
  for (const Item& item : items) {
    parts_.push_back({.refusal = CheckMedium(facts, item), .first = shown_.size()});
    Part& part = parts_.back();
    absl::StatusOr<size_t> stride = StrideOf(facts, item);
    part.refusal.Update(stride.status());
    if (!part.refusal.ok()) continue;
    Show(facts, item, *stride);
    part.count = shown_.size() - part.first;
  }
}

void ShownItems::Show(const RewardFacts& facts, const Item& item, size_t stride) {
  if (item.is_video() && !facts.videos) {
    for (size_t i = 0; i < item.frames.size(); i += stride) {
      shown_.push_back(item);
      shown_.back().frames = item.frames.subspan(i, 1);
      shown_.back().frames_every = 1;
    }
    return;
  }
  shown_.push_back(item);
  if (stride == 1) return;
  std::vector<Image8>& chosen = chosen_.emplace_back();
  for (size_t i = 0; i < item.frames.size(); i += stride) chosen.push_back(item.frames[i]);
  shown_.back().frames = chosen;
  shown_.back().frames_every = facts.frames_every;
}

std::vector<absl::StatusOr<Score>> ShownItems::Combine(
    std::vector<absl::StatusOr<Score>> scores) const {
  OXBOW_CHECK(scores.size() == shown_.size()) << scores.size() << " for " << shown_.size();
  std::vector<absl::StatusOr<Score>> combined;
  combined.reserve(parts_.size());
  for (const Part& part : parts_) {
    if (!part.refusal.ok()) {
      combined.emplace_back(part.refusal);
    } else if (part.count == 1) {
      combined.push_back(std::move(scores[part.first]));
    } else {
      combined.push_back(MeanOf(absl::MakeSpan(scores).subspan(part.first, part.count)));
    }
  }
  return combined;
}

}  // namespace oxbow::reward
