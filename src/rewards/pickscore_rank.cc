// SPDX-License-Identifier: Apache-2.0
#include "rewards/pickscore_rank.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/reward/group_ranks.h"
#include "rewards/pickscore.h"

namespace oxbow::rewards {
namespace {

using reward::Item;
using reward::Score;

class PickScoreRank final : public reward::Scorer {
 public:
  explicit PickScoreRank(std::unique_ptr<Scorer> pickscore)
      : pickscore_(std::move(pickscore)),
        facts_({.name = "pickscore_rank",
                .help = "rank by PickScore in the group, divided by its size",
                .groupwise = true,
                .identity = absl::StrCat("pickscore_rank/1 ", pickscore_->facts().identity)}) {}

  const reward::RewardFacts& facts() const override { return facts_; }
  int concurrency_max() const override { return pickscore_->concurrency_max(); }
  std::vector<absl::StatusOr<Score>> ScoreBatch(absl::Span<const Item> items) override;

 private:
  const std::unique_ptr<Scorer> pickscore_;
  const reward::RewardFacts facts_;
};

std::vector<absl::StatusOr<Score>> PickScoreRank::ScoreBatch(absl::Span<const Item> items) {
  std::vector<absl::StatusOr<Score>> scores = pickscore_->ScoreBatch(items);
  std::map<uint64_t, std::vector<size_t>> groups;  // Places of the items that have a PickScore.
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].group == 0) {
      scores[i] = absl::InvalidArgumentError("pickscore_rank compares the items of a group");
    } else if (scores[i].ok()) {
      groups[items[i].group].push_back(i);
    }
  }
  for (const auto& [group, places] : groups) {
    std::vector<double> values;
    values.reserve(places.size());
    for (const size_t place : places) values.push_back(scores[place]->value);
    const std::vector<double> shares = reward::RankShares(values);
    for (size_t i = 0; i < places.size(); ++i) scores[places[i]]->value = shares[i];
  }
  return scores;
}

}  // namespace

std::unique_ptr<reward::Scorer> MakePickScoreRank(std::shared_ptr<ClipTowers> towers) {
  return std::make_unique<PickScoreRank>(MakePickScore(std::move(towers)));
}

}  // namespace oxbow::rewards
