#include "services/reward/score_plan.h"

#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace oxbow::reward {
namespace {

// Rewards that are asked for together.
struct Lot {
  std::vector<std::string> rewards;
  bool groupwise = false;
  size_t batch_max = 1;
};

std::vector<Lot> LotsOf(const RewardDirectory& directory, const std::vector<std::string>& rewards) {
  const std::map<std::string, RewardFacts> facts = directory.Facts();
  std::vector<std::pair<std::set<size_t>, Lot>> lots;
  for (const std::string& reward : rewards) {
    const auto known = facts.find(reward);
    const bool groupwise = known != facts.end() && known->second.groupwise;
    const std::set<size_t> servers = directory.ServersOf(reward);
    auto lot = lots.begin();
    while (lot != lots.end() && (lot->first != servers || lot->second.groupwise != groupwise))
      ++lot;
    if (lot == lots.end()) lot = lots.insert(lot, {servers, {.groupwise = groupwise}});
    lot->second.rewards.push_back(reward);
  }
  std::vector<Lot> plan;
  for (auto& [servers, lot] : lots) {
    lot.batch_max = directory.BatchMax(lot.rewards);
    plan.push_back(std::move(lot));
  }
  return plan;
}

ScoreBatch WholeGroup(const Lot& lot, const std::vector<Image8>& images, size_t bytes_max) {
  ScoreBatch batch{.images = {}, .rewards = lot.rewards, .whole_group = true};
  size_t bytes = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    batch.images.push_back(i);
    bytes += images[i].pixels.size();
  }
  if (images.size() > lot.batch_max || bytes > bytes_max) {
    batch.too_large = absl::StrCat(absl::StrJoin(lot.rewards, ", "),
                                   " compares the images of a group, and the group is too "
                                   "large for one request: ",
                                   images.size(), " images of ", bytes, " bytes; the server takes ",
                                   lot.batch_max, " of ", bytes_max);
  }
  return batch;
}

void Cut(const Lot& lot, const std::vector<Image8>& images, size_t bytes_max,
         std::vector<ScoreBatch>& batches) {
  size_t bytes = 0;
  ScoreBatch batch{.images = {}, .rewards = lot.rewards};
  const auto finish = [&] {
    if (!batch.images.empty()) batches.push_back(std::exchange(batch, {{}, lot.rewards}));
    bytes = 0;
  };
  for (size_t i = 0; i < images.size(); ++i) {
    const size_t size = images[i].pixels.size();
    if (size > bytes_max) {
      batches.push_back({.images = {i},
                         .rewards = lot.rewards,
                         .too_large = absl::StrCat("image is too large to send: ", size,
                                                   " bytes over ", bytes_max)});
      continue;
    }
    if (batch.images.size() >= lot.batch_max || bytes + size > bytes_max) finish();
    batch.images.push_back(i);
    bytes += size;
  }
  finish();
}

}  // namespace

std::vector<ScoreBatch> PlanBatches(const RewardDirectory& directory,
                                    const std::vector<std::string>& rewards,
                                    const std::vector<Image8>& images, size_t bytes_max) {
  std::vector<ScoreBatch> batches;
  for (const Lot& lot : LotsOf(directory, rewards)) {
    if (lot.groupwise) {
      batches.push_back(WholeGroup(lot, images, bytes_max));
    } else {
      Cut(lot, images, bytes_max, batches);
    }
  }
  return batches;
}

}  // namespace oxbow::reward
