// SPDX-License-Identifier: Apache-2.0
#include "core/reward/scorer.h"

#include "base/check.h"

namespace oxbow::reward {

std::vector<absl::StatusOr<Score>> PictureScorer::ScoreBatch(absl::Span<const Item> items) {
  std::vector<absl::StatusOr<Score>> scores;
  scores.reserve(items.size());
  for (const Item& item : items) {
    scores.push_back(ScorePicture(item.prompt, item.metadata_json, item.picture()));
  }
  return scores;
}

absl::StatusOr<Score> ScoreOne(Scorer& scorer, std::string_view prompt,
                               std::string_view metadata_json, const Image8& image) {
  const Item item{.prompt = prompt, .metadata_json = metadata_json, .frames = {&image, 1}};
  std::vector<absl::StatusOr<Score>> scores = scorer.ScoreBatch({&item, 1});
  OXBOW_CHECK(scores.size() == 1) << scores.size() << " scores of " << scorer.facts().name;
  return std::move(scores.front());
}

}  // namespace oxbow::reward
