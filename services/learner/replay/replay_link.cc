// SPDX-License-Identifier: Apache-2.0
#include "services/learner/replay/replay_link.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/trace.h"

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

}  // namespace

ReplayLink::ReplayLink(Options options, LearnerMetrics& metrics)
    : options_(std::move(options)), metrics_(metrics) {
  OXBOW_CHECK(!options_.endpoints.empty()) << "endpoints of the replay buffer";
  for (const std::string& endpoint : options_.endpoints) {
    shards_.push_back(std::make_unique<ShardLink>(
        ShardLink::Options{
            .endpoint = endpoint,
            .shards = static_cast<uint32_t>(options_.endpoints.size()),
            .shard = static_cast<uint32_t>(shards_.size()),
            .timeout = options_.timeout,
            .probe_every = options_.probe_every,
            .await_back = options_.await_back,
            .step_budget = options_.step_budget,
            .rest_least = options_.rest_least,
            .call_bytes_max = options_.call_bytes_max,
            .commits_max = options_.commits_max,
            .backlog_bytes_max = options_.backlog_bytes_max / options_.endpoints.size(),
            .run = options_.run,
            .take_from = options_.take_from,
            .epoch = options_.epoch,
            .start = options_.start},
        metrics_));
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

// The first one in this thread: most runs have no other.
void ReplayLink::ForEach(const std::vector<uint32_t>& shards,
                         const std::function<void(uint32_t)>& call) {
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

}  // namespace oxbow::learner
