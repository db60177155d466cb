// SPDX-License-Identifier: Apache-2.0
#include "rewards/batch_scorer.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "core/model/device_memory.h"
#include "core/reward/clip_crop.h"
#include "io/image.h"

namespace oxbow::rewards {
namespace {

reward::RewardFacts Over(const ClipTowers& towers, reward::RewardFacts facts) {
  absl::StrAppend(&facts.identity, " clip ", towers.identity());
  return facts;
}

constexpr char kSmaller[] = "give the reward a device with more room (device), or dtype: bfloat16";

}  // namespace

using reward::Item;

ClipScorer::ClipScorer(reward::RewardFacts facts, std::shared_ptr<ClipTowers> towers)
    : BatchScorer(Over(*towers, std::move(facts))), towers_(std::move(towers)) {}

std::vector<double> ClipScorer::Cosines(absl::Span<const Item* const> items, ClipInput input,
                                        std::string (*read)(const std::string& prompt)) const {
  std::vector<std::string> texts;
  std::vector<const Image8*> images;
  for (const Item* const item : items) {
    const std::string prompt(item->prompt);
    texts.push_back(read != nullptr ? read(prompt) : prompt);
    images.push_back(&item->picture());
  }
  const at::Tensor cosines =
      (towers_->EmbedTexts(texts) * towers_->EmbedImages(images, input)).sum(-1);
  const float* const values = cosines.const_data_ptr<float>();
  return {values, values + cosines.numel()};
}

using reward::Score;

std::vector<absl::StatusOr<Score>> BatchScorer::ScoreBatch(absl::Span<const Item> items) {
  std::vector<absl::StatusOr<Score>> scores(items.size(), Score{});
  std::vector<const Item*> sound;
  std::vector<size_t> places;
  for (size_t i = 0; i < items.size(); ++i) {
    if (absl::Status status = CheckImage(items[i].picture()); !status.ok()) {
      scores[i] = std::move(status);
      continue;
    }
    sound.push_back(&items[i]);
    places.push_back(i);
  }
  if (sound.empty()) return scores;
  absl::StatusOr<std::vector<double>> values = std::vector<double>();
  const absl::Status computed = model::WithMemoryFor(
      [&] {
        values = Values(sound);
        return values.status();
      },
      kSmaller);
  if (!computed.ok()) values = computed;
  OXBOW_CHECK(!values.ok() || values->size() == sound.size()) << facts_.name;
  for (size_t i = 0; i < sound.size(); ++i) {
    if (!values.ok()) {
      scores[places[i]] = values.status();
    } else if (std::isfinite((*values)[i])) {
      scores[places[i]] = Score{.value = (*values)[i]};
    } else {
      scores[places[i]] =
          absl::InternalError(absl::StrCat(facts_.name, " is not finite: ", (*values)[i],
                                           "; in 16 bits, weights may overflow: try float32"));
    }
  }
  return scores;
}

absl::Status CheckCropped(const Image8& image, int64_t side, const std::string& who) {
  if (io::IsValid(image) &&
      reward::CanClipCrop({image.width, image.height}, static_cast<int>(side))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      who, " takes no such image: ", image.width, " x ", image.height, ", ", image.channels,
      " channels, ", image.pixels.size(), " bytes, to be resized to ", side));
}

}  // namespace oxbow::rewards
