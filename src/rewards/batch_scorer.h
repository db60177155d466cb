// SPDX-License-Identifier: Apache-2.0
// The common part of rewards that are models: checks of items, one pass for all that can be scored,
// and an error in place of a score that is not finite.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/reward/scorer.h"
#include "rewards/clip_towers.h"

namespace oxbow::rewards {

class BatchScorer : public reward::Scorer {
 public:
  const reward::RewardFacts& facts() const final { return facts_; }
  std::vector<absl::StatusOr<reward::Score>> ScoreBatch(absl::Span<const reward::Item> items) final;
  int concurrency_max() const final { return 1; }

 protected:
  explicit BatchScorer(reward::RewardFacts facts) : facts_(std::move(facts)) {}

  // kInvalidArgument for an image that the model does not take.
  virtual absl::Status CheckImage(const Image8& image) const = 0;

  // One value per item, of images that CheckImage takes. An error is that of all of them; so is
  // what torch throws of a device that is lost or full.
  virtual absl::StatusOr<std::vector<double>> Values(
      absl::Span<const reward::Item* const> items) const = 0;

 private:
  const reward::RewardFacts facts_;
};

// Whether a CLIP-like crop to `side` takes the image: its bytes, its channels, and no strip that
// would be a giant once its shorter side is resized. kInvalidArgument begins with `who`.
absl::Status CheckCropped(const Image8& image, int64_t side, const std::string& who);

// The common part of rewards over CLIP's embeddings: the images that towers take, and cosines.
class ClipScorer : public BatchScorer {
 protected:
  // The towers' identity is added to that of `facts`.
  ClipScorer(reward::RewardFacts facts, std::shared_ptr<ClipTowers> towers);

  ClipTowers& towers() const { return *towers_; }

  // Cosines of each item's prompt, as `read` gives it to the tokenizer, and its image.
  std::vector<double> Cosines(absl::Span<const reward::Item* const> items, ClipInput input,
                              std::string (*read)(const std::string& prompt) = nullptr) const;

 private:
  absl::Status CheckImage(const Image8& image) const final { return towers_->CheckImage(image); }

  const std::shared_ptr<ClipTowers> towers_;
};

}  // namespace oxbow::rewards
