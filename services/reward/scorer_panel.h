// SPDX-License-Identifier: Apache-2.0
// The scorers of one server, and the rules of scoring: an image of inconsistent size, a scorer that
// fails and a score that is not finite are errors, never numbers.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "core/reward/scorer.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::reward {

// A scorer that keeps its last results and gives them again for the same media, prompt and
// metadata: for scorers that are slow or cost money. Errors are not kept.
//
// Results are found by XXH3-128 hashes of all that a score depends on, the reward's identity among
// it. Such a hash is no protection from a caller who makes two images of one hash.
//
// Thread-safe as far as the scorer is.
class CachedScorer final : public Scorer {
 public:
  // Keeps up to `items_max` results, at least one; those go first that were not asked for the
  // longest. A groupwise scorer has none to keep: its results depend on other items.
  CachedScorer(std::unique_ptr<Scorer> scorer, size_t items_max);

  const RewardFacts& facts() const override { return scorer_->facts(); }
  // A score that was kept is marked so. Items that are equal are scored once.
  std::vector<absl::StatusOr<Score>> ScoreBatch(absl::Span<const Item> items) override;
  int concurrency_max() const override { return scorer_->concurrency_max(); }
  void Stop() override { scorer_->Stop(); }

 private:
  using Key = std::string;
  using Entry = std::pair<Key, Score>;

  Key KeyOf(const Item& item) const;
  std::optional<Score> Find(const Key& key) ABSL_LOCKS_EXCLUDED(mutex_);
  void Keep(const Key& key, const Score& score) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::unique_ptr<Scorer> scorer_;
  const size_t items_max_;
  absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // The last used first.
  std::map<Key, std::list<Entry>::iterator> places_ ABSL_GUARDED_BY(mutex_);
};

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
