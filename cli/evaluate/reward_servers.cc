// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate/reward_servers.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "base/status_macros.h"
#include "run/rewards.h"
#include "services/reward/reward_client.h"
#include "services/reward/scorer_table.h"

namespace oxbow::cli {
namespace {

constexpr size_t kCallsAtOnce = 8;  // Each is one prompt's pictures.

using Scored = std::vector<absl::StatusOr<reward::Score>>;

bool IsNameAlone(const v1::ScorerConfig& entry) {
  std::vector<const google::protobuf::FieldDescriptor*> set;
  entry.GetReflection()->ListFields(entry, &set);
  return set.size() == 1 && !entry.name().empty();
}

// Asks servers for one reward. They choose the frames of videos and the sizes of batches.
class ServedReward final : public reward::Scorer {
 public:
  ServedReward(reward::RewardFacts facts, std::unique_ptr<reward::RewardClient> client)
      : facts_(std::move(facts)), client_(std::move(client)) {
    facts_.batch_max = 0;
    facts_.frames_every = 1;
  }
  const reward::RewardFacts& facts() const override { return facts_; }
  int concurrency_max() const override { return 1; }
  Scored ScoreBatch(absl::Span<const reward::Item> items) override;

 private:
  void ScoreGroup(absl::Span<const reward::Item> group, Scored::iterator scores);

  reward::RewardFacts facts_;
  const std::unique_ptr<reward::RewardClient> client_;
};

void ServedReward::ScoreGroup(absl::Span<const reward::Item> group, Scored::iterator scores) {
  std::vector<reward::Frames> media;
  for (const reward::Item& item : group) media.push_back(item.frames);
  const auto answers = client_->ScoreMedia(std::string(group.front().prompt),
                                           std::string(group.front().metadata_json), media);
  for (const absl::StatusOr<reward::Scores>& answer : answers) {
    *scores++ = answer.ok()
                    ? absl::StatusOr<reward::Score>(reward::Score{.value = answer->at(facts_.name)})
                    : answer.status();
  }
}

// Items of one group follow each other, and make one call.
Scored ServedReward::ScoreBatch(absl::Span<const reward::Item> items) {
  std::vector<absl::Span<const reward::Item>> groups;
  for (size_t first = 0; first < items.size();) {
    size_t last = first + 1;
    while (last < items.size() && items[last].group == items[first].group) ++last;
    groups.push_back(items.subspan(first, last - first));
    first = last;
  }
  Scored scores(items.size(), absl::UnknownError("not scored"));
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < groups.size(); i = next++) {
      ScoreGroup(groups[i], scores.begin() + (groups[i].data() - items.data()));
    }
  };
  std::vector<std::jthread> others;
  for (size_t i = 1; i < std::min(groups.size(), kCallsAtOnce); ++i) others.emplace_back(work);
  work();
  others.clear();  // Joins them.
  return scores;
}

}  // namespace

RewardServers::RewardServers(const v1::RewardConfig& run)
    : endpoints_(run.endpoints().begin(), run.endpoints().end()),
      of_run_(true),
      timeout_(absl::Seconds(run.timeout_seconds())),
      transport_(run.transport()) {
  for (const std::string& name : run::RewardNames(run)) names_.insert(name);
  for (const std::string& name : run::OwnRewards(run)) names_.erase(name);
}

bool RewardServers::Have(const v1::ScorerConfig& entry) const {
  if (endpoints_.empty() || !IsNameAlone(entry)) return false;
  if (!of_run_ || names_.contains(entry.name())) return true;
  const std::vector<std::string> here = reward::PlainScorerNames();
  return std::find(here.begin(), here.end(), entry.name()) == here.end();
}

absl::StatusOr<std::unique_ptr<reward::Scorer>> RewardServers::Open(const std::string& name) const {
  OXBOW_ASSIGN_OR_RETURN(
      std::unique_ptr<reward::RewardClient> client,
      reward::RewardClient::Create({.endpoints = endpoints_,
                                    .elsewhere = {endpoints_.begin(), endpoints_.end()},
                                    .rewards = {name},
                                    .timeout = timeout_,
                                    .transport = transport_}));
  reward::RewardFacts facts = client->Facts().at(name);
  return std::make_unique<ServedReward>(std::move(facts), std::move(client));
}

}  // namespace oxbow::cli
