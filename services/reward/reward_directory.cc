// SPDX-License-Identifier: Apache-2.0
#include "services/reward/reward_directory.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
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

bool CircuitBreaker::Admits(absl::Duration now, absl::Duration trial) {
  if (failures_ == 0) return true;
  if (now < until_) return false;
  until_ = now + trial;
  return true;
}

void CircuitBreaker::Failed(absl::Duration now, double jitter, absl::Duration pause) {
  const absl::Duration full =
      std::min(options_.rest_first * (int64_t{1} << std::min(failures_, 20)), options_.rest_max);
  ++failures_;
  until_ = now + std::max(full * (0.5 + 0.5 * jitter), pause * (1 + 0.25 * jitter));
}

RewardDirectory::RewardDirectory(std::vector<std::string> endpoints,
                                 CircuitBreaker::Options breaker,
                                 std::map<std::string, std::string> identities)
    : breaker_(breaker), identities_(std::move(identities)) {
  for (std::string& endpoint : endpoints) servers_.push_back({.endpoint = std::move(endpoint)});
}

absl::Status RewardDirectory::Described(size_t server, const std::vector<RewardFacts>& rewards,
                                        size_t batch_max) {
  Server& described = servers_[server];
  described.described = true;
  described.batch_max = std::max<size_t>(batch_max, 1);
  described.rewards.clear();
  absl::Status conflict;
  for (const RewardFacts& facts : rewards) {
    const absl::Status status = CheckIdentity(server, facts);
    if (status.ok()) described.rewards[facts.name] = facts;
    conflict.Update(status);
  }
  return conflict;
}

// Compares with the pin, and with the other servers. A server may not know its identity.
absl::Status RewardDirectory::CheckIdentity(size_t server, const RewardFacts& facts) const {
  const auto differs = [&](const std::string& identity) {
    return !identity.empty() && !facts.identity.empty() && identity != facts.identity;
  };
  const std::string here =
      absl::StrCat(servers_[server].endpoint, " has ", facts.identity, " as reward ", facts.name);
  if (const auto pin = identities_.find(facts.name);
      pin != identities_.end() && differs(pin->second)) {
    return absl::InvalidArgumentError(absl::StrCat(here, ", the run is trained on ", pin->second));
  }
  for (size_t other = 0; other < servers_.size(); ++other) {
    const auto found = servers_[other].rewards.find(facts.name);
    if (other == server || found == servers_[other].rewards.end()) continue;
    if (!differs(found->second.identity)) continue;
    return absl::InvalidArgumentError(absl::StrCat(here, ", ", servers_[other].endpoint, " has ",
                                                   found->second.identity,
                                                   ": their scores would not compare"));
  }
  return absl::OkStatus();
}

CircuitBreaker& RewardDirectory::BreakerOf(Server& server, const std::string& reward) {
  return server.breakers.try_emplace(reward, breaker_).first->second;
}

std::optional<RewardDirectory::Turn> RewardDirectory::Next(const std::vector<std::string>& wanted,
                                                           absl::Duration now,
                                                           absl::Duration trial) {
  for (size_t i = 0; i < servers_.size(); ++i) {
    Turn turn{.server = (turn_ + i) % servers_.size(), .rewards = {}};
    Server& server = servers_[turn.server];
    if (server.described) {
      for (const std::string& reward : wanted) {
        if (server.rewards.contains(reward) && BreakerOf(server, reward).Admits(now, trial)) {
          turn.rewards.push_back(reward);
        }
      }
      if (turn.rewards.empty()) continue;
    } else if (!BreakerOf(server, "").Admits(now, trial)) {
      continue;
    }
    turn_ = turn.server + 1;
    return turn;
  }
  return std::nullopt;
}

absl::Duration RewardDirectory::RestOver(const std::vector<std::string>& wanted) const {
  absl::Duration earliest = absl::InfiniteDuration();
  const auto consider = [&](const Server& server, const std::string& reward) {
    const auto breaker = server.breakers.find(reward);
    earliest = std::min(
        earliest, breaker == server.breakers.end() ? absl::ZeroDuration() : breaker->second.next());
  };
  for (const Server& server : servers_) {
    if (!server.described) consider(server, "");
    for (const std::string& reward : wanted) {
      if (server.described && server.rewards.contains(reward)) consider(server, reward);
    }
  }
  return earliest;
}

void RewardDirectory::Note(size_t server, const std::string& reward, bool answered,
                           absl::Duration now, double jitter, absl::Duration pause) {
  CircuitBreaker& breaker = BreakerOf(servers_[server], reward);
  if (answered) {
    breaker.Answered();
  } else {
    breaker.Failed(now, jitter, pause);
  }
}

std::map<std::string, RewardFacts> RewardDirectory::Facts() const {
  std::map<std::string, RewardFacts> facts;
  for (const Server& server : servers_) {
    facts.insert(server.rewards.begin(), server.rewards.end());
  }
  return facts;
}

std::set<size_t> RewardDirectory::ServersOf(const std::string& reward) const {
  std::set<size_t> having;
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i].rewards.contains(reward)) having.insert(i);
  }
  return having;
}

absl::Status RewardDirectory::CheckNames(const std::vector<std::string>& wanted) const {
  std::set<std::string> known;
  std::vector<std::string> silent;
  for (const Server& server : servers_) {
    if (!server.described) silent.push_back(server.endpoint);
    for (const auto& [name, facts] : server.rewards) known.insert(name);
  }
  for (const std::string& name : wanted) {
    if (known.contains(name)) continue;
    if (!silent.empty()) {
      return absl::UnavailableError(
          absl::StrCat("no reward server that answers has reward ", name,
                       "; these do not answer: ", absl::StrJoin(silent, ", ")));
    }
    return absl::InvalidArgumentError(absl::StrCat("no reward server knows reward (there are ",
                                                   absl::StrJoin(known, ", "), "): ", name));
  }
  return absl::OkStatus();
}

size_t RewardDirectory::BatchMax(const std::vector<std::string>& rewards) const {
  size_t limit = 0;
  const auto narrow = [&](size_t other) {
    if (other > 0) limit = limit == 0 ? other : std::min(limit, other);
  };
  for (const Server& server : servers_) {
    for (const std::string& reward : rewards) {
      const auto found = server.rewards.find(reward);
      if (found == server.rewards.end()) continue;
      narrow(server.batch_max);
      narrow(found->second.batch_max);
    }
  }
  return std::max<size_t>(limit, 1);
}

uint32_t RewardDirectory::FramesEvery(const std::vector<std::string>& rewards) const {
  uint32_t every = 0;
  for (const Server& server : servers_) {
    for (const std::string& reward : rewards) {
      const auto found = server.rewards.find(reward);
      if (found != server.rewards.end()) every = std::gcd(every, found->second.frames_every);
    }
  }
  return std::max(every, 1U);
}

}  // namespace oxbow::reward
