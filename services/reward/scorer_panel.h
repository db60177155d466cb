// SPDX-License-Identifier: Apache-2.0
// The scorers of one server, and the rules of scoring: an image of inconsistent size, a scorer that
// fails and a score that is not finite are errors, never numbers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/reward/scorer.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::reward {

inline constexpr int kImageSideMax = 8192;

class ScorerPanel {
 public:
  // kInvalidArgument for an unknown name, a duplicate name, or no name.
  static absl::StatusOr<ScorerPanel> Create(const std::vector<v1::ScorerConfig>& entries);

  // Takes existing scorers. Requires distinct names and at least one scorer.
  explicit ScorerPanel(std::vector<std::unique_ptr<Scorer>> scorers);

  const std::vector<std::unique_ptr<Scorer>>& scorers() const { return scorers_; }
  std::vector<std::string> names() const;

  // The scorers of these names, in that order; all if `names` is empty. kNotFound names a scorer
  // that this panel does not have.
  absl::StatusOr<std::vector<Scorer*>> Select(const std::vector<std::string>& names) const;

 private:
  std::vector<std::unique_ptr<Scorer>> scorers_;
};

// OK iff width and height are in 1..kImageSideMax and channels is 1 or 3.
absl::Status ValidateShape(const Image8& image);
// And the number of bytes matches.
absl::Status Validate(const Image8& image);

// One result per item, in calls of the scorer's batch_max, with the frames that it reads
// (core/reward/shown_items.h). An item of a medium that the scorer does not read is
// kInvalidArgument, a score that is not finite kInternal. Requires valid frames.
std::vector<absl::StatusOr<Score>> ScoreItems(Scorer& scorer, absl::Span<const Item> items);

}  // namespace oxbow::reward
