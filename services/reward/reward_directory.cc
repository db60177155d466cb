// SPDX-License-Identifier: Apache-2.0
#include "services/reward/reward_directory.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace oxbow::reward {

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
