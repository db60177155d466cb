// SPDX-License-Identifier: Apache-2.0
// The common part of rewards over CLIP's embeddings: the images that towers take, and cosines.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rewards/batch_scorer.h"
#include "rewards/clip_towers.h"

namespace oxbow::rewards {

class ClipScorer : public BatchScorer {
 protected:
  // The towers' identity is added to that of `facts`.
  ClipScorer(reward::RewardFacts facts, std::shared_ptr<ClipTowers> towers);

  ClipTowers& towers() const { return *towers_; }

  // Cosines of each item's prompt, with `prefix` before it, and its image.
  std::vector<double> Cosines(absl::Span<const reward::Item* const> items, ClipInput input,
                              const std::string& prefix = "") const;

  // Cosines of each text and the image of the item at the same place.
  std::vector<double> Cosines(const std::vector<std::string>& texts,
                              absl::Span<const reward::Item* const> items, ClipInput input) const;

 private:
  absl::Status CheckImage(const Image8& image) const final { return towers_->CheckImage(image); }

  const std::shared_ptr<ClipTowers> towers_;
};

}  // namespace oxbow::rewards
