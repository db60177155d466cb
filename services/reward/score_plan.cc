// SPDX-License-Identifier: Apache-2.0
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
  uint32_t frames_every = 1;
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
    lot.frames_every = directory.FramesEvery(lot.rewards);
    plan.push_back(std::move(lot));
  }
  return plan;
}

std::string TooLarge(const MediumSize& size, uint32_t every, const BatchLimits& limits) {
  const uint64_t bytes = size.bytes_sent(every);
  const uint64_t frames = size.frames_sent(every);
  if (bytes <= limits.medium_bytes && frames <= limits.frames) return "";
  if (size.frames == 1) {
    return absl::StrCat("image is too large to send: ", bytes, " bytes over ", limits.medium_bytes);
  }
  return absl::StrCat("video is too large to send: its rewards read ", frames, " of ", size.frames,
                      " frames, ", bytes, " bytes, over the limits of ", limits.frames,
                      " frames and ", limits.medium_bytes,
                      " bytes: make it shorter or smaller, or use rewards that read fewer frames");
}

ScoreBatch WholeGroup(const Lot& lot, const std::vector<MediumSize>& sizes,
                      const BatchLimits& limits) {
  ScoreBatch batch{
      .images = {}, .rewards = lot.rewards, .whole_group = true, .frames_every = lot.frames_every};
  uint64_t bytes = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    batch.images.push_back(i);
    bytes += sizes[i].bytes_sent(lot.frames_every);
    if (batch.too_large.empty()) batch.too_large = TooLarge(sizes[i], lot.frames_every, limits);
  }
  if (sizes.size() > lot.batch_max || bytes > limits.group_bytes) {
    batch.too_large = absl::StrCat(absl::StrJoin(lot.rewards, ", "),
                                   " compares the images of a group, and the group is too "
                                   "large for one request: ",
                                   sizes.size(), " images of ", bytes, " bytes; the server takes ",
                                   lot.batch_max, " of ", limits.group_bytes);
  }
  return batch;
}

void Cut(const Lot& lot, const std::vector<MediumSize>& sizes, const BatchLimits& limits,
         std::vector<ScoreBatch>& batches) {
  const ScoreBatch empty{.images = {}, .rewards = lot.rewards, .frames_every = lot.frames_every};
  uint64_t bytes = 0;
  ScoreBatch batch = empty;
  const auto finish = [&] {
    if (!batch.images.empty()) batches.push_back(std::exchange(batch, empty));
    bytes = 0;
  };
  for (size_t i = 0; i < sizes.size(); ++i) {
    const uint64_t size = sizes[i].bytes_sent(lot.frames_every);
    if (size > limits.batch_bytes || sizes[i].frames_sent(lot.frames_every) > limits.frames) {
      ScoreBatch alone = empty;  // In pieces.
      alone.images = {i};
      alone.too_large = TooLarge(sizes[i], lot.frames_every, limits);
      batches.push_back(std::move(alone));
      continue;
    }
    if (batch.images.size() >= lot.batch_max || bytes + size > limits.batch_bytes) finish();
    batch.images.push_back(i);
    bytes += size;
  }
  finish();
}

}  // namespace

std::vector<ScoreBatch> PlanBatches(const RewardDirectory& directory,
                                    const std::vector<std::string>& rewards,
                                    const std::vector<MediumSize>& sizes,
                                    const BatchLimits& limits) {
  std::vector<ScoreBatch> batches;
  for (const Lot& lot : LotsOf(directory, rewards)) {
    if (lot.groupwise) {
      batches.push_back(WholeGroup(lot, sizes, limits));
    } else {
      Cut(lot, sizes, limits, batches);
    }
  }
  return batches;
}

}  // namespace oxbow::reward
