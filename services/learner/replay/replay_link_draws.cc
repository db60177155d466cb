// SPDX-License-Identifier: Apache-2.0
// Draws and reads of the link: heads of best, prompts and groups of the queues.
#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "core/flow/window.h"
#include "core/replay/table_policy.h"
#include "rpc/convert.h"
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

constexpr uint64_t kHeadBytesMax = uint64_t{1} << 40;

std::string ShapeText(std::span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// The shape of one latent of many.
std::string LatentText(const v1::Tensor& latents) {
  const std::span<const int64_t> shape(latents.shape().data(),
                                       static_cast<size_t>(latents.shape_size()));
  return ShapeText(shape.empty() ? shape : shape.subspan(1));
}

template <typename T>
std::vector<T> Joined(std::vector<std::vector<T>> of_shards) {
  std::vector<T> all;
  for (std::vector<T>& of_shard : of_shards) {
    std::move(of_shard.begin(), of_shard.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace

std::nullopt_t ReplayLink::RefuseHead(const v1::ReplayEntry& entry, const char* reason) {
  ++heads_refused_;
  metrics_.HeadRefused(reason);
  OXBOW_LOG(Warning) << "replay entry is not used" << Field("entry", entry.entry_id())
                     << Field("reason", reason)
                     << Field("latent", LatentText(entry.trajectory().latents()))
                     << Field("latent_of_run", ShapeText(options_.latent_shape));
  return std::nullopt;
}

bool ReplayLink::HasShape(const v1::Tensor& latents) const {
  const auto& shape = latents.shape();
  return !shape.empty() && std::equal(shape.begin() + 1, shape.end(), options_.latent_shape.begin(),
                                      options_.latent_shape.end());
}

std::optional<ReplayedHead> ReplayLink::HeadOf(uint32_t shard, LearnerStep step,
                                               const v1::ReplayEntry& entry,
                                               const std::vector<bool>& sde) {
  const v1::Trajectory& stored = entry.trajectory();
  if (stored.schedule_id() != options_.schedule_id) return RefuseHead(entry, "schedule");
  const flow::LatentSpan span =
      options_.images ? ImageSpan(stored) : HeadSpan(stored, static_cast<int>(options_.kept_steps));
  if (span.count == 0) return RefuseHead(entry, "no_density");
  const bool same =
      sde.empty() || std::equal(sde.begin(), sde.end(), stored.sde().begin(), stored.sde().end());
  // The latents that are stored have the shape of this run's, and the head is among them.
  const int64_t skipped = span.first - static_cast<int64_t>(stored.first_latent());
  if (!HasShape(stored.latents())) return RefuseHead(entry, "size");
  const int64_t count = stored.latents().shape(0);
  const absl::StatusOr<uint64_t> bytes = rpc::DeclaredBytes(stored.latents(), kHeadBytesMax);
  const bool fits =
      bytes.ok() && count > 0 && *bytes == options_.latent_bytes * static_cast<uint64_t>(count);
  if (!fits || skipped < 0 || skipped + span.count > count) return RefuseHead(entry, "size");
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
  head.trajectory.mutable_latents()->clear_data();
  return head;
}

// Cuts the head's latents out of those that are stored.
bool ReplayLink::FillHead(v1::ReplayEntry entry, ReplayedHead& head) {
  const v1::Trajectory& stored = entry.trajectory();
  std::string& read = *entry.mutable_trajectory()->mutable_latents()->mutable_data();
  v1::Tensor& latents = *head.trajectory.mutable_latents();
  const uint64_t begin =
      options_.latent_bytes * (head.trajectory.first_latent() - stored.first_latent());
  const uint64_t bytes = options_.latent_bytes * static_cast<uint64_t>(latents.shape(0));
  if (begin > read.size() || read.size() - begin < bytes) return false;
  if (bytes == read.size()) {
    latents.set_data(std::move(read));
  } else {
    latents.set_data(read.substr(begin, bytes));
  }
  return true;
}

// All of a shard's entries in one call: their bytes follow each other.
std::vector<v1::ReplayEntry> ReplayLink::ReadEntries(uint32_t shard,
                                                     const std::vector<EntryId>& ids) {
  auto entries = shards_[shard]->Ask(
      "read", [&](buffer::ReplayClient& client) { return client.ReadMany(ids); });
  if (!entries.ok() || entries->size() < ids.size()) {
    metrics_.BufferFailed("read");
    OXBOW_LOG(Warning) << "cannot read replay entries"
                       << Field("entries", ids.size() - (entries.ok() ? entries->size() : 0))
                       << Field("error", std::string(entries.status().message()));
  }
  if (!entries.ok()) return {};
  return *std::move(entries);
}

// The latents that were read beside the loop, or else are read now: then a shard that is away is
// waited for, if the run waits for it at all.
std::vector<size_t> ReplayLink::TakeLatents(LearnerStep step, std::vector<PlannedGroup>& planned) {
  std::vector<std::map<EntryId, size_t>> wanted(shards_.size());  // Groups, by entry.
  for (size_t i = 0; i < planned.size(); ++i) {
    const std::optional<ReplayedHead>& head = planned[i].head;
    if (head.has_value()) wanted[head->shard][head->entry] = i;
  }
  std::vector<std::set<size_t>> filled(shards_.size());
  std::vector<uint32_t> all(shards_.size());
  std::iota(all.begin(), all.end(), 0u);
  ForEach(all, [&](uint32_t shard) {
    const auto fill = [&](std::vector<v1::ReplayEntry> entries) {
      for (v1::ReplayEntry& entry : entries) {
        const auto found = wanted[shard].find(EntryId(entry.entry_id()));
        if (found == wanted[shard].end()) continue;  // Its group goes on without it.
        const size_t group = found->second;
        if (FillHead(std::move(entry), *planned[group].head)) filled[shard].insert(group);
        wanted[shard].erase(found);
      }
    };
    auto read = shards_[shard]->Spend(
        "read", [&](absl::Duration left) { return readers_[shard]->Take(step, left); });
    if (read.has_value() && read->ok()) fill(**std::move(read));
    if (wanted[shard].empty()) return;
    std::vector<EntryId> missing;
    for (const auto& [entry, group] : wanted[shard]) missing.push_back(entry);
    fill(ReadEntries(shard, missing));
  });
  std::vector<size_t> lost;
  for (size_t i = 0; i < planned.size(); ++i) {
    if (!planned[i].head.has_value() || filled[planned[i].head->shard].contains(i)) continue;
    OXBOW_LOG(Warning) << "group is trained without its replayed head"
                       << Field("group", planned[i].id) << Field("entry", planned[i].head->entry);
    metrics_.HeadMissing();
    planned[i].head.reset();
    lost.push_back(i);
  }
  return lost;
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
    const auto response = shards_[shard]->Ask("draw", [&](buffer::ReplayClient& client) {
      return client.Draw(options_.epoch, step, share, options_.seed);
    });
    if (!response.ok()) {
      shards_[shard]->Failed("draw", response.status());
      return;
    }
    std::vector<EntryId> to_read;
    for (const v1::ReplayEntry& entry : response->entries()) {
      std::optional<ReplayedHead> head = HeadOf(shard, step, entry, sde);
      if (!head.has_value()) continue;
      to_read.push_back(head->entry);
      heads[shard].push_back(*std::move(head));
    }
    if (!to_read.empty()) readers_[shard]->Begin(step, std::move(to_read));
  });
  return Joined(std::move(heads));
}

std::vector<WaitingPrompt> ReplayLink::DrawHardPrompts(LearnerStep step, uint32_t count) {
  if (count == 0) return {};
  std::vector<std::vector<v1::ReplayEntry>> of_shards(shards_.size());
  ForEach(Deliver(), [&](uint32_t shard) {
    auto response = shards_[shard]->Ask("draw", [&](buffer::ReplayClient& client) {
      return client.Draw(options_.epoch, step, count, options_.seed, replay::kHardPrompts);
    });
    if (!response.ok()) {
      shards_[shard]->Failed("draw", response.status());
      return;
    }
    auto& entries = *response->mutable_entries();
    of_shards[shard].assign(std::make_move_iterator(entries.begin()),
                            std::make_move_iterator(entries.end()));
  });
  std::vector<v1::ReplayEntry> drawn = Joined(std::move(of_shards));
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

std::vector<v1::ReplayEntry> ReplayLink::Listed(const std::vector<uint32_t>& shards,
                                                const List& list) {
  std::vector<std::vector<v1::ReplayEntry>> of_shards(shards_.size());
  ForEach(shards, [&](uint32_t shard) {
    auto listed = shards_[shard]->Ask(
        "list", [&](buffer::ReplayClient& client) { return list(shard, client); });
    if (!listed.ok()) {
      shards_[shard]->Failed("list", listed.status());
      return;
    }
    of_shards[shard] = *std::move(listed);
  });
  std::vector<v1::ReplayEntry> entries = Joined(std::move(of_shards));
  std::erase_if(entries, [&](const v1::ReplayEntry& entry) { return !OfSchedule(entry); });
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.entry_id() < b.entry_id(); });
  return entries;
}

std::vector<v1::ReplayEntry> ReplayLink::RecentGroups() {
  return Listed(Deliver(), [](uint32_t, buffer::ReplayClient& client) {
    return client.List(replay::kRecentGroups);
  });
}

std::vector<v1::ReplayEntry> ReplayLink::StoredOf(const std::vector<PromptId>& prompts) {
  std::vector<std::vector<PromptId>> of_shards(shards_.size());
  for (const PromptId prompt : std::set(prompts.begin(), prompts.end()))
    of_shards[ShardOfPrompt(prompt.value)].push_back(prompt);
  std::vector<uint32_t> asked = Deliver();
  std::erase_if(asked, [&](uint32_t shard) { return of_shards[shard].empty(); });
  return Listed(asked, [&](uint32_t shard, buffer::ReplayClient& client) {
    return client.ListOf(of_shards[shard]);
  });
}

// Any shard may have them all.
std::vector<v1::ReplayEntry> ReplayLink::NewestStored(LearnerStep step,
                                                      const replay::DrawLimits& limits,
                                                      size_t count,
                                                      const std::vector<EntryId>& taken) {
  const std::set<EntryId> left_out(taken.begin(), taken.end());
  const auto wanted = [&](const v1::ReplayEntry& entry) {
    return OfSchedule(entry) && !left_out.contains(EntryId(entry.entry_id()));
  };
  return Listed(Deliver(), [&](uint32_t, buffer::ReplayClient& client) {
    return client.ListNewest(step, limits, count, wanted);
  });
}

std::vector<ReplayedHead> ReplayLink::ReadWholeHeads(LearnerStep step,
                                                     const std::vector<v1::ReplayEntry>& entries,
                                                     const std::vector<bool>& sde) {
  if (entries.empty()) return {};
  std::vector<std::vector<EntryId>> of_shards(shards_.size());
  for (const v1::ReplayEntry& entry : entries) {
    of_shards[ShardOfPrompt(entry.prompt().id())].push_back(EntryId(entry.entry_id()));
  }
  std::vector<std::vector<ReplayedHead>> read(shards_.size());
  std::vector<uint32_t> asked = Deliver();
  std::erase_if(asked, [&](uint32_t shard) { return of_shards[shard].empty(); });
  ForEach(asked, [&](uint32_t shard) {
    for (v1::ReplayEntry& entry : ReadEntries(shard, of_shards[shard])) {
      std::optional<ReplayedHead> head = HeadOf(shard, step, entry, sde);
      if (head.has_value() && FillHead(std::move(entry), *head)) {
        read[shard].push_back(*std::move(head));
      }
    }
  });
  std::map<EntryId, ReplayedHead> found;
  for (ReplayedHead& head : Joined(std::move(read))) {
    head.whole = true;
    const EntryId id = head.entry;
    found.emplace(id, std::move(head));
  }
  std::vector<ReplayedHead> heads;
  for (const v1::ReplayEntry& entry : entries) {
    const auto head = found.find(EntryId(entry.entry_id()));
    if (head != found.end()) heads.push_back(std::move(head->second));
  }
  return heads;
}

std::optional<v1::Group> ReplayLink::RefuseGroup(const v1::ReplayEntry& entry,
                                                 const absl::Status& why) {
  metrics_.BufferFailed("read");
  OXBOW_LOG(Warning) << "cannot read a recent group" << Field("entry", entry.entry_id())
                     << Field("error", std::string(why.message()));
  return std::nullopt;
}

std::optional<v1::Group> ReplayLink::ReadGroup(const v1::ReplayEntry& entry) {
  const v1::Tensor& latents = entry.trajectory().latents();
  if (!HasShape(latents)) {
    return RefuseGroup(entry, absl::InvalidArgumentError(absl::StrCat(
                                  "its latents are ", LatentText(latents), ", those of this run ",
                                  ShapeText(options_.latent_shape))));
  }
  auto read = ShardOf(entry).Ask("read", [&](buffer::ReplayClient& client) {
    return client.Read(EntryId(entry.entry_id()), 0, static_cast<uint32_t>(latents.shape(0)));
  });
  absl::StatusOr<v1::Group> group =
      read.ok() ? GroupOfEntry(*std::move(read)) : absl::StatusOr<v1::Group>(read.status());
  if (!group.ok()) return RefuseGroup(entry, group.status());
  return *std::move(group);
}

}  // namespace oxbow::learner
