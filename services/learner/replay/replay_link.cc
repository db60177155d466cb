// SPDX-License-Identifier: Apache-2.0
#include "services/learner/replay/replay_link.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/trace.h"
#include "services/learner/replay/replay_offer.h"

namespace oxbow::learner {
namespace {

// Adds what the next shard says to the `total` of those before it, as one buffer with the entries
// of all would say it: sums, means over entries, extremes. What only one process can say of itself
// (disk, clock) stays unset.
void AddShard(const v1::InfoResponse& shard, v1::InfoResponse& total) {
  const auto before = static_cast<double>(total.entries());
  const auto added = static_cast<double>(shard.entries());
  const auto mean = [&](double of_total, double of_shard) {
    return added == 0 ? of_total : (before * of_total + added * of_shard) / (before + added);
  };
  total.set_raw_reward_mean(mean(total.raw_reward_mean(), shard.raw_reward_mean()));
  total.set_priority_mean(mean(total.priority_mean(), shard.priority_mean()));
  total.set_age_mean_steps(mean(total.age_mean_steps(), shard.age_mean_steps()));
  total.set_uses_mean(mean(total.uses_mean(), shard.uses_mean()));
  if (added > 0) {
    total.set_priority_min(before == 0 ? shard.priority_min()
                                       : std::min(total.priority_min(), shard.priority_min()));
    total.set_age_max_steps(std::max(total.age_max_steps(), shard.age_max_steps()));
  }
  total.set_entries(total.entries() + shard.entries());
  total.set_bytes(total.bytes() + shard.bytes());
  total.set_capacity(total.capacity() + shard.capacity());
  total.set_step(std::max(total.step(), shard.step()));
  for (const v1::NamedValue& count : shard.offers()) {
    auto& sums = *total.mutable_offers();
    const auto sum = std::find_if(sums.begin(), sums.end(),
                                  [&](const auto& other) { return other.name() == count.name(); });
    if (sum == sums.end()) {
      *sums.Add() = count;
    } else {
      sum->set_value(sum->value() + count.value());
    }
  }
  for (int i = 0; i < shard.tables_size(); ++i) {
    if (i == total.tables_size()) {
      *total.add_tables() = shard.tables(i);
      continue;
    }
    v1::TableInfo& table = *total.mutable_tables(i);
    table.set_capacity(table.capacity() + shard.tables(i).capacity());
    table.set_entries(table.entries() + shard.tables(i).entries());
    table.set_bytes(table.bytes() + shard.tables(i).bytes());
    table.set_evicted(table.evicted() + shard.tables(i).evicted());
  }
}

std::string ShapeText(std::span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// The shape of one latent of many.
std::string LatentText(const v1::Tensor& latents) {
  const std::span<const int64_t> shape(latents.shape().data(),
                                       static_cast<size_t>(latents.shape_size()));
  return ShapeText(shape.empty() ? shape : shape.subspan(1));
}

// Calls `call` for these shards, all at once: the first one in this thread, as most runs have no
// other.
void ForEach(const std::vector<uint32_t>& shards, const std::function<void(uint32_t)>& call) {
  if (shards.empty()) return;
  const std::optional<Trace> trace = CurrentTrace();
  std::vector<std::thread> others;
  for (size_t i = 1; i < shards.size(); ++i) {
    others.emplace_back([&call, &trace, shard = shards[i]] {
      const TraceScope scope(trace);
      call(shard);
    });
  }
  call(shards[0]);
  for (std::thread& other : others) other.join();
}

// The same. What `call` gives, in the order of the shards, which rise.
template <typename T, typename Call>
std::vector<T> OfEach(const std::vector<uint32_t>& shards, const Call& call) {
  std::vector<std::vector<T>> of_shards(shards.empty() ? 0 : shards.back() + 1);
  ForEach(shards, [&](uint32_t shard) { of_shards[shard] = call(shard); });
  std::vector<T> all;
  for (std::vector<T>& of_shard : of_shards) {
    std::move(of_shard.begin(), of_shard.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace

ReplayLink::ReplayLink(Options options, LearnerMetrics& metrics)
    : options_(std::move(options)), metrics_(metrics) {
  OXBOW_CHECK(!options_.endpoints.empty()) << "endpoints of the replay buffer";
  ShardLink::Options each = options_.each;
  each.shards = static_cast<uint32_t>(options_.endpoints.size());
  each.backlog_bytes_max /= each.shards;
  for (const std::string& endpoint : options_.endpoints) {
    each.endpoint = endpoint;
    each.shard = static_cast<uint32_t>(shards_.size());
    shards_.push_back(std::make_unique<ShardLink>(each, metrics_));
    readers_.push_back(std::make_unique<HeadReader>(
        [shard = shards_.back().get()](const std::vector<EntryId>& ids) {
          return shard->client().ReadMany(ids);
        }));
  }
  metrics_.BufferAttached(true);
}

ReplayLink::~ReplayLink() = default;

bool ReplayLink::attached() const {
  return std::all_of(shards_.begin(), shards_.end(),
                     [](const auto& shard) { return shard->attached(); });
}

absl::Status ReplayLink::ended() const {
  for (const auto& shard : shards_) OXBOW_RETURN_IF_ERROR(shard->ended());
  return absl::OkStatus();
}

bool ReplayLink::AwaitAttachedForTest(absl::Duration timeout) const {
  return std::all_of(shards_.begin(), shards_.end(),
                     [&](const auto& shard) { return shard->AwaitAttachedForTest(timeout); });
}

std::vector<uint32_t> ReplayLink::Deliver() {
  std::vector<uint32_t> all(shards_.size());
  std::iota(all.begin(), all.end(), 0u);
  std::vector<char> there(shards_.size());  // Not bool: threads write it side by side.
  ForEach(all, [&](uint32_t shard) { there[shard] = shards_[shard]->Deliver() ? 1 : 0; });
  std::erase_if(all, [&](uint32_t shard) { return there[shard] == 0; });
  metrics_.BufferAttached(all.size() == shards_.size());
  return all;
}

void ReplayLink::Restore(const std::string& checkpoint, LearnerStep committed) {
  for (const auto& shard : shards_) shard->Restore(checkpoint, committed);
  Deliver();
  for (const auto& shard : shards_) shard->BeginStep();
}

void ReplayLink::Commit(StepCommit commit) {
  std::vector<StepCommit> parts(shards_.size());
  for (StepCommit& part : parts) {
    part.step = commit.step;
    part.used = commit.used;
    part.evict = commit.evict;
    part.rescored = commit.rescored;
    part.failures_max = commit.failures_max;
  }
  for (v1::ReplayEntry& offer : commit.offers) {
    parts[offer.prompt().id() % parts.size()].offers.push_back(std::move(offer));
  }
  for (v1::ReplayEntry& group : commit.groups) {
    parts[group.prompt().id() % parts.size()].groups.push_back(std::move(group));
  }
  for (size_t i = 0; i < parts.size(); ++i) shards_[i]->Add(std::move(parts[i]));
  Deliver();
  for (const auto& shard : shards_) {
    shard->LimitBacklog();
    shard->BeginStep();
  }
}

absl::Status ReplayLink::Checkpoint(const std::string& name, uint32_t keep) {
  if (Deliver().size() < shards_.size()) {
    return absl::UnavailableError("a shard of the replay buffer is away");
  }
  for (const auto& shard : shards_) OXBOW_RETURN_IF_ERROR(shard->Checkpoint(name, keep));
  OXBOW_LOG(Debug) << "replay buffer keeps a checkpoint" << Field("checkpoint", name);
  return absl::OkStatus();
}

std::optional<v1::InfoResponse> ReplayLink::Info() {
  v1::InfoResponse total;
  bool any = false;
  for (const auto& shard : shards_) {
    if (!shard->attached()) continue;
    const auto info = shard->Spend(
        "info", [&](absl::Duration left) { return shard->client().Within(left).Info(); });
    if (!info.ok()) continue;
    AddShard(*info, total);
    any = true;
  }
  return any ? std::optional(total) : std::nullopt;
}

std::optional<ReplayedHead> ReplayLink::HeadOf(uint32_t shard, LearnerStep step,
                                               const v1::ReplayEntry& entry,
                                               const std::vector<bool>& sde) {
  const char* reason = nullptr;
  std::optional<ReplayedHead> head = options_.form.HeadOf(step, entry, sde, reason);
  if (head.has_value()) {
    head->shard = shard;
    return head;
  }
  ++heads_refused_;
  metrics_.HeadRefused(reason);
  OXBOW_LOG(Warning) << "replay entry is not used" << Field("entry", entry.entry_id())
                     << Field("reason", reason)
                     << Field("latent", LatentText(entry.trajectory().latents()))
                     << Field("latent_of_run", ShapeText(options_.form.latent_shape));
  return head;
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
    const ReplayedHead* head = planned[i].head();
    if (head != nullptr) wanted[head->shard][head->entry] = i;
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
        if (options_.form.Fill(std::move(entry), *planned[group].head()))
          filled[shard].insert(group);
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
    const ReplayedHead* head = planned[i].head();
    if (head == nullptr || filled[head->shard].contains(i)) continue;
    OXBOW_LOG(Warning) << "group is trained without its replayed head"
                       << Field("group", planned[i].id) << Field("entry", head->entry);
    metrics_.HeadMissing();
    planned[i].kind = FreshGroup();
    lost.push_back(i);
  }
  return lost;
}

std::vector<v1::ReplayEntry> ReplayLink::DrawFrom(uint32_t shard, LearnerStep step, uint32_t count,
                                                  const std::string& table) {
  auto response = shards_[shard]->Ask("draw", [&](buffer::ReplayClient& client) {
    return client.Draw(options_.each.epoch, step, count, options_.seed, table);
  });
  if (!response.ok()) {
    shards_[shard]->Failed("draw", response.status());
    return {};
  }
  auto& entries = *response->mutable_entries();
  return {std::make_move_iterator(entries.begin()), std::make_move_iterator(entries.end())};
}

std::vector<ReplayedHead> ReplayLink::Draw(LearnerStep step, uint32_t count,
                                           const std::vector<bool>& sde) {
  if (count == 0) return {};
  const std::vector<uint32_t> there = Deliver();
  return OfEach<ReplayedHead>(there, [&](uint32_t shard) {
    // Shares differ by at most one, and the larger ones go round.
    const auto shards = static_cast<uint32_t>(there.size());
    const auto place = std::lower_bound(there.begin(), there.end(), shard) - there.begin();
    const auto turn = (static_cast<uint64_t>(place) + step.value) % shards;
    const uint32_t share = count / shards + (turn < count % shards ? 1 : 0);
    std::vector<ReplayedHead> heads;
    std::vector<EntryId> to_read;
    if (share == 0) return heads;
    for (const v1::ReplayEntry& entry : DrawFrom(shard, step, share, /*table=*/"")) {
      std::optional<ReplayedHead> head = HeadOf(shard, step, entry, sde);
      if (!head.has_value()) continue;
      to_read.push_back(head->entry);
      heads.push_back(*std::move(head));
    }
    if (!to_read.empty()) readers_[shard]->Begin(step, std::move(to_read));
    return heads;
  });
}

std::vector<v1::ReplayEntry> ReplayLink::DrawHardPrompts(LearnerStep step, uint32_t count) {
  if (count == 0) return {};
  std::vector<v1::ReplayEntry> drawn = OfEach<v1::ReplayEntry>(Deliver(), [&](uint32_t shard) {
    return DrawFrom(shard, step, count, replay::kHardPrompts);
  });
  // Each shard gave its oldest; take those of all that failed longest ago.
  std::stable_sort(drawn.begin(), drawn.end(),
                   [](const auto& a, const auto& b) { return a.birth_step() < b.birth_step(); });
  drawn.resize(std::min<size_t>(drawn.size(), count));
  return drawn;
}

std::vector<v1::ReplayEntry> ReplayLink::Listed(const std::vector<uint32_t>& shards,
                                                const List& list) {
  auto entries = OfEach<v1::ReplayEntry>(shards, [&](uint32_t shard) {
    auto listed = shards_[shard]->Ask(
        "list", [&](buffer::ReplayClient& client) { return list(shard, client); });
    if (!listed.ok()) shards_[shard]->Failed("list", listed.status());
    return listed.ok() ? *std::move(listed) : std::vector<v1::ReplayEntry>();
  });
  std::erase_if(entries, [&](const auto& entry) { return !options_.form.OfSchedule(entry); });
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
    return options_.form.OfSchedule(entry) && !left_out.contains(EntryId(entry.entry_id()));
  };
  return Listed(Deliver(), [&](uint32_t, buffer::ReplayClient& client) {
    return client.ListNewest(step, limits, count, wanted);
  });
}

std::vector<ReplayedHead> ReplayLink::ReadHeads(LearnerStep step,
                                                const std::vector<v1::ReplayEntry>& entries,
                                                const std::vector<bool>& sde) {
  if (entries.empty()) return {};
  std::vector<std::vector<EntryId>> of_shards(shards_.size());
  for (const v1::ReplayEntry& entry : entries) {
    of_shards[ShardOfPrompt(entry.prompt().id())].push_back(EntryId(entry.entry_id()));
  }
  std::vector<uint32_t> asked = Deliver();
  std::erase_if(asked, [&](uint32_t shard) { return of_shards[shard].empty(); });
  const auto read = [&](uint32_t shard) {
    std::vector<ReplayedHead> heads;
    for (v1::ReplayEntry& entry : ReadEntries(shard, of_shards[shard])) {
      std::optional<ReplayedHead> head = HeadOf(shard, step, entry, sde);
      if (!head.has_value() || !options_.form.Fill(std::move(entry), *head)) continue;
      heads.push_back(*std::move(head));
    }
    return heads;
  };
  std::map<EntryId, ReplayedHead> found;
  for (ReplayedHead& head : OfEach<ReplayedHead>(asked, read)) {
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
  if (!options_.form.HasShape(latents)) {
    return RefuseGroup(entry, absl::InvalidArgumentError(absl::StrCat(
                                  "its latents are ", LatentText(latents), ", those of this run ",
                                  ShapeText(options_.form.latent_shape))));
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
