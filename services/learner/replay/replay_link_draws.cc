// What the link draws and reads: heads of best, prompts and groups of the queues.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "base/log.h"
#include "core/flow/window.h"
#include "core/replay/table_policy.h"
#include "services/learner/replay/group_tables.h"
#include "services/learner/replay/replay_link.h"
#include "services/learner/replay/replay_offer.h"

namespace oxbow::learner {

namespace {

// Whether a head has every stochastic step of its trajectory: what follows has no density.
bool IsWhole(const v1::Trajectory& stored, const flow::LatentSpan& head) {
  for (int i = head.end() - 1; i < stored.sde_size(); ++i) {
    if (stored.sde(i)) return false;
  }
  return true;
}

}  // namespace

std::nullopt_t ReplayLink::RefuseHead(const v1::ReplayEntry& entry, const char* reason) {
  ++heads_refused_;
  metrics_.HeadRefused(reason);
  OXBOW_LOG(Warning) << "replay entry is not used" << Field("entry", entry.entry_id())
                     << Field("reason", reason);
  return std::nullopt;
}

std::optional<ReplayedHead> ReplayLink::ReadHead(uint32_t shard, LearnerStep step,
                                                 const v1::ReplayEntry& entry,
                                                 const std::vector<bool>& sde) {
  const v1::Trajectory& stored = entry.trajectory();
  if (stored.schedule_id() != options_.schedule_id) return RefuseHead(entry, "schedule");
  const flow::LatentSpan span =
      options_.images ? ImageSpan(stored) : HeadSpan(stored, static_cast<int>(options_.kept_steps));
  if (span.count == 0) return RefuseHead(entry, "no_density");
  const bool same =
      sde.empty() || std::equal(sde.begin(), sde.end(), stored.sde().begin(), stored.sde().end());
  if (!same && options_.same_window) return RefuseHead(entry, "window");
  auto read =
      shards_[shard]->client().Read(EntryId(entry.entry_id()), static_cast<uint32_t>(span.first),
                                    static_cast<uint32_t>(span.count));
  if (!read.ok()) {
    metrics_.BufferFailed("read");
    OXBOW_LOG(Warning) << "cannot read a replay entry" << Field("entry", entry.entry_id())
                       << Field("error", std::string(read.status().message()));
    return std::nullopt;
  }
  std::string* latents = read->mutable_trajectory()->mutable_latents()->mutable_data();
  if (latents->size() != options_.latent_bytes * static_cast<uint64_t>(span.count)) {
    return RefuseHead(entry, "size");
  }
  ReplayedHead head{.entry = EntryId(entry.entry_id()),
                    .shard = shard,
                    .prompt = entry.prompt(),
                    .kept_steps = static_cast<uint32_t>(span.end() - 1),
                    .whole = options_.stored_tail && IsWhole(stored, span),
                    .stored_reward = stored.reward(),
                    .age = step.value - std::min(step.value, entry.birth_step()),
                    .uses = entry.uses(),
                    .other_window = !same,
                    .trajectory = stored};
  head.trajectory.set_first_latent(static_cast<uint32_t>(span.first));
  head.trajectory.mutable_latents()->set_shape(0, span.count);
  head.trajectory.mutable_latents()->set_data(std::move(*latents));
  return head;
}

std::vector<ReplayedHead> ReplayLink::Draw(LearnerStep step, uint32_t count,
                                           const std::vector<bool>& sde) {
  if (count == 0) return {};
  const std::vector<uint32_t> there = Deliver();
  std::vector<std::vector<ReplayedHead>> heads(shards_.size());
  ForEach(there, [&](uint32_t shard) {
    // Shares differ by at most one, and the larger ones go round.
    const auto shards = static_cast<uint32_t>(there.size());
    const auto place = std::lower_bound(there.begin(), there.end(), shard) - there.begin();
    const auto turn = (static_cast<uint64_t>(place) + step.value) % shards;
    const uint32_t share = count / shards + (turn < count % shards ? 1 : 0);
    if (share == 0) return;
    const auto response = shards_[shard]->client().Draw(options_.epoch, step, share, options_.seed);
    if (!response.ok()) {
      shards_[shard]->Failed("draw", response.status());
      return;
    }
    for (const v1::ReplayEntry& entry : response->entries()) {
      std::optional<ReplayedHead> head = ReadHead(shard, step, entry, sde);
      if (head.has_value()) heads[shard].push_back(*std::move(head));
    }
  });
  std::vector<ReplayedHead> all;
  for (std::vector<ReplayedHead>& of_shard : heads) {
    std::move(of_shard.begin(), of_shard.end(), std::back_inserter(all));
  }
  return all;
}

std::vector<WaitingPrompt> ReplayLink::DrawHardPrompts(LearnerStep step, uint32_t count) {
  if (count == 0) return {};
  std::vector<v1::ReplayEntry> drawn;
  for (const uint32_t shard : Deliver()) {
    auto response = shards_[shard]->client().Draw(options_.epoch, step, count, options_.seed,
                                                  replay::kHardPrompts);
    if (!response.ok()) {
      shards_[shard]->Failed("draw", response.status());
      continue;
    }
    for (v1::ReplayEntry& entry : *response->mutable_entries()) drawn.push_back(std::move(entry));
  }
  // Each shard gave its oldest; take those of all that failed longest ago.
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
  for (const uint32_t shard : Deliver()) {
    auto listed = shards_[shard]->client().List(replay::kRecentGroups);
    if (!listed.ok()) {
      shards_[shard]->Failed("list", listed.status());
      continue;
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
  auto read = ShardOf(entry).client().Read(
      EntryId(entry.entry_id()), 0, static_cast<uint32_t>(entry.trajectory().latents().shape(0)));
  absl::StatusOr<v1::Group> group =
      read.ok() ? GroupOfEntry(*std::move(read)) : absl::StatusOr<v1::Group>(read.status());
  if (group.ok()) return *std::move(group);
  metrics_.BufferFailed("read");
  OXBOW_LOG(Warning) << "cannot read a recent group" << Field("entry", entry.entry_id())
                     << Field("error", std::string(group.status().message()));
  return std::nullopt;
}

}  // namespace oxbow::learner
