// SPDX-License-Identifier: Apache-2.0
#include "rewards/clip_scorer.h"

#include <ATen/ATen.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace oxbow::rewards {

using reward::Item;

namespace {

reward::RewardFacts Over(const ClipTowers& towers, reward::RewardFacts facts) {
  absl::StrAppend(&facts.identity, " clip ", towers.identity());
  return facts;
}

}  // namespace

ClipScorer::ClipScorer(reward::RewardFacts facts, std::shared_ptr<ClipTowers> towers)
    : BatchScorer(Over(*towers, std::move(facts))), towers_(std::move(towers)) {}

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
