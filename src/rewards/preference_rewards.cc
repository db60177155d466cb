// SPDX-License-Identifier: Apache-2.0
#include "rewards/preference_rewards.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "io/prompts/text_sides.h"
#include "rewards/batch_scorer.h"

namespace oxbow::rewards {
namespace {

using reward::Item;
using reward::Score;

constexpr double kDivisor = 26;

class PickScore final : public ClipScorer {
 public:
  explicit PickScore(std::shared_ptr<ClipTowers> towers)
      : ClipScorer({.name = "pickscore",
                    .value_min = -towers->scale() / kDivisor,
                    .value_max = towers->scale() / kDivisor,
                    .help = "PickScore: exp(logit_scale) cos(prompt, image) / 26",
                    .identity = "pickscore/1"},
                   towers) {}

 private:
  absl::StatusOr<std::vector<double>> Values(absl::Span<const Item* const> items) const override {
    std::vector<double> values = Cosines(items, ClipInput::kProcessor);
    for (double& value : values) value *= towers().scale() / kDivisor;
    return values;
  }
};

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
    const std::vector<double> shares = RankShares(values);
    for (size_t i = 0; i < places.size(); ++i) scores[places[i]]->value = shares[i];
  }
  return scores;
}

class Hpsv2 final : public ClipScorer {
 public:
  explicit Hpsv2(std::shared_ptr<ClipTowers> towers)
      : ClipScorer({.name = "hpsv2",
                    .value_min = -1,
                    .value_max = 1,
                    .help = "HPSv2: cos(prompt, image)",
                    .identity = "hpsv2/3"},
                   std::move(towers)) {}

 private:
  absl::StatusOr<std::vector<double>> Values(absl::Span<const Item* const> items) const override {
    return Cosines(items, ClipInput::kBicubicPadded,
                   [](const std::string& prompt) { return io::CleanedPrompt(prompt); });
  }
};

}  // namespace

std::vector<double> RankShares(const std::vector<double>& values) {
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  std::vector<double> shares;
  shares.reserve(values.size());
  for (const double value : values) {
    const auto [first, last] = std::equal_range(sorted.begin(), sorted.end(), value);
    // The mean of the ranks first .. last - 1.
    const double rank =
        static_cast<double>((first - sorted.begin()) + (last - sorted.begin()) - 1) / 2;
    shares.push_back(rank / static_cast<double>(values.size()));
  }
  return shares;
}

std::unique_ptr<reward::Scorer> MakePickScore(std::shared_ptr<ClipTowers> towers) {
  return std::make_unique<PickScore>(std::move(towers));
}

std::unique_ptr<reward::Scorer> MakePickScoreRank(std::shared_ptr<ClipTowers> towers) {
  return std::make_unique<PickScoreRank>(MakePickScore(std::move(towers)));
}

std::unique_ptr<reward::Scorer> MakeHpsv2(std::shared_ptr<ClipTowers> towers) {
  return std::make_unique<Hpsv2>(std::move(towers));
}

}  // namespace oxbow::rewards
