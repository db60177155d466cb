#include "rewards/clip_scorer.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace oxbow::rewards {

using reward::Item;
using reward::Score;

ClipScorer::ClipScorer(reward::RewardFacts facts, std::shared_ptr<ClipTowers> towers)
    : facts_(std::move(facts)), towers_(std::move(towers)) {
  absl::StrAppend(&facts_.identity, " clip ", towers_->identity());
}

std::vector<absl::StatusOr<Score>> ClipScorer::ScoreBatch(absl::Span<const Item> items) {
  std::vector<absl::StatusOr<Score>> scores(items.size(), Score{});
  std::vector<const Item*> sound;
  std::vector<size_t> places;
  for (size_t i = 0; i < items.size(); ++i) {
    if (absl::Status status = towers_->CheckImage(items[i].picture()); !status.ok()) {
      scores[i] = std::move(status);
      continue;
    }
    sound.push_back(&items[i]);
    places.push_back(i);
  }
  if (sound.empty()) return scores;
  const std::vector<double> values = Values(sound);
  OXBOW_CHECK(values.size() == sound.size()) << values.size() << " values of " << facts_.name;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) {
      scores[places[i]] = Score{.value = values[i]};
    } else {
      scores[places[i]] =
          absl::InternalError(absl::StrCat(facts_.name, " is not finite: ", values[i],
                                           "; in 16 bits, weights may overflow: try float32"));
    }
  }
  return scores;
}

std::vector<double> ClipScorer::Cosines(absl::Span<const Item* const> items, ClipInput input,
                                        const std::string& prefix) const {
  std::vector<std::string> texts;
  texts.reserve(items.size());
  for (const Item* const item : items) texts.push_back(prefix + std::string(item->prompt));
  return Cosines(texts, items, input);
}

std::vector<double> ClipScorer::Cosines(const std::vector<std::string>& texts,
                                        absl::Span<const Item* const> items,
                                        ClipInput input) const {
  std::vector<const Image8*> images;
  images.reserve(items.size());
  for (const Item* const item : items) images.push_back(&item->picture());
  const at::Tensor cosines =
      (towers_->EmbedTexts(texts) * towers_->EmbedImages(images, input)).sum(-1);
  const float* const values = cosines.const_data_ptr<float>();
  return {values, values + cosines.numel()};
}

}  // namespace oxbow::rewards
