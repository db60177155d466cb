// What the rewards over CLIP's embeddings share: checks of items, one pass for all that can be
// scored, and an error in place of a score that is not finite.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/reward/scorer.h"
#include "rewards/clip_towers.h"

namespace oxbow::rewards {

class ClipScorer : public reward::Scorer {
 public:
  const reward::RewardFacts& facts() const final { return facts_; }
  std::vector<absl::StatusOr<reward::Score>> ScoreBatch(absl::Span<const reward::Item> items) final;
  int concurrency_max() const final { return 1; }

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

  // One value per item. The images are ones that the towers take.
  virtual std::vector<double> Values(absl::Span<const reward::Item* const> items) const = 0;

 private:
  reward::RewardFacts facts_;
  const std::shared_ptr<ClipTowers> towers_;
};

}  // namespace oxbow::rewards
