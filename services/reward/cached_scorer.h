// SPDX-License-Identifier: Apache-2.0
// A scorer that keeps its last results and gives them again for the same media, prompt and
// metadata: for scorers that are slow or cost money. Errors are not kept.
//
// Results are found by XXH3-128 hashes of all that a score depends on, the reward's identity among
// it. Such a hash is no protection from a caller who makes two images of one hash.
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
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "core/reward/scorer.h"

namespace oxbow::reward {

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

}  // namespace oxbow::reward
