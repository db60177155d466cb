// The link's part about the buffer's queues.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "core/replay/table_policy.h"
#include "services/learner/desk/group_tables.h"
#include "services/learner/desk/replay_link.h"

namespace oxbow::learner {

std::vector<WaitingPrompt> ReplayLink::DrawHardPrompts(LearnerStep step, uint32_t count) {
  std::vector<v1::ReplayEntry> drawn;
  if (count == 0 || !Deliver()) return {};
  for (const auto& shard : shards_) {
    auto response = shard->Draw(options_.epoch, step, count, options_.seed, replay::kHardPrompts);
    if (!response.ok()) {
      Lost("draw", response.status());
      return {};
    }
    for (v1::ReplayEntry& entry : *response->mutable_entries()) drawn.push_back(std::move(entry));
  }
  // Each shard gave its oldest; of all, those that failed longest ago.
  std::stable_sort(drawn.begin(), drawn.end(),
                   [](const auto& a, const auto& b) { return a.birth_step() < b.birth_step(); });
  drawn.resize(std::min<size_t>(drawn.size(), count));
  std::vector<WaitingPrompt> waiting;
  for (v1::ReplayEntry& entry : drawn) {
    waiting.push_back(
        {.entry = EntryId(entry.entry_id()), .prompt = std::move(*entry.mutable_prompt())});
  }
  return waiting;
}

std::vector<v1::ReplayEntry> ReplayLink::RecentGroups() {
  std::vector<v1::ReplayEntry> groups;
  if (!Deliver()) return groups;
  for (const auto& shard : shards_) {
    auto listed = shard->List(replay::kRecentGroups);
    if (!listed.ok()) {
      Lost("list", listed.status());
      return {};
    }
    for (v1::ReplayEntry& entry : *listed) {
      if (entry.trajectory().schedule_id() != options_.schedule_id) continue;
      groups.push_back(std::move(entry));
    }
  }
  std::sort(groups.begin(), groups.end(),
            [](const auto& a, const auto& b) { return a.entry_id() < b.entry_id(); });
  return groups;
}

std::optional<v1::Group> ReplayLink::ReadGroup(const v1::ReplayEntry& entry) {
  const auto& shard = shards_[entry.prompt().id() % shards_.size()];
  auto read = shard->Read(EntryId(entry.entry_id()), 0,
                          static_cast<uint32_t>(entry.trajectory().latents().shape(0)));
  absl::StatusOr<v1::Group> group =
      read.ok() ? GroupOfEntry(*std::move(read)) : absl::StatusOr<v1::Group>(read.status());
  if (group.ok()) return *std::move(group);
  metrics_.BufferFailed("read");
  OXBOW_LOG(Warning) << "cannot read a recent group" << Field("entry", entry.entry_id())
                     << Field("error", std::string(group.status().message()));
  return std::nullopt;
}

absl::Status ReplayLink::HandGroups(const StepCommit& commit, size_t shard) {
  for (const buffer::EntryWithLatents& group : commit.groups) {
    if (group.header.prompt().id() % shards_.size() != shard) continue;
    OXBOW_ASSIGN_OR_RETURN(const v1::OfferResponse response,
                           shards_[shard]->Offer(options_.epoch, {group}));
    Answered(commit.step, group, response.results(0));
  }
  return absl::OkStatus();
}

}  // namespace oxbow::learner
