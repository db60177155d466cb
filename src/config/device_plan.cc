// SPDX-License-Identifier: Apache-2.0
#include "config/device_plan.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace oxbow::config {
namespace {

constexpr char kAnyGpu[] = "cuda";

bool RewardsOnGpu(const v1::RewardConfig& reward) {
  return std::any_of(reward.scorers().begin(), reward.scorers().end(),
                     [](const v1::ScorerConfig& scorer) { return scorer.device() == kAnyGpu; });
}

// The most ranks, up to `most`, that get equal shares of a step.
uint32_t RanksThatDivide(const v1::RunConfig& config, uint32_t most) {
  const auto divides = [&](uint32_t ranks) {
    return config.batch().groups() % ranks == 0 && config.replay().added() % ranks == 0;
  };
  while (most > 1 && !divides(most)) --most;
  return std::max(1u, most);
}

// GPUs that rewards have for themselves, at most one for each server.
int GpusOfRewards(const v1::RunConfig& config, int ranks, int workers, int gpus) {
  if (!RewardsOnGpu(config.reward())) return 0;
  // The processes of a model with a numbered device are all on that one.
  if (config.model().device() != kAnyGpu) return 0;
  const int servers = static_cast<int>(config.services().reward_servers());
  if (ranks + workers < gpus) return std::min(servers, gpus - ranks - workers);
  const bool shared = ranks + workers > gpus;
  return shared && gpus > 2 && std::max(ranks, workers) < gpus ? std::min(servers, 1) : 0;
}

}  // namespace

void CountProcesses(int gpus, GpuSharing sharing, v1::RunConfig& config) {
  uint32_t ranks = config.learner().ranks(), workers = config.services().rollout_workers();
  const bool counts = gpus > 0 && config.model().device() == kAnyGpu;
  const uint32_t all = counts ? static_cast<uint32_t>(gpus) : 1;
  const bool apart = all > 1 && (sharing != GpuSharing::kTogether ||
                                 config.publish().transport() == v1::TRANSPORT_BROADCAST);
  const bool rewards = RewardsOnGpu(config.reward());
  if (ranks == kAuto) {
    const uint32_t others = workers == kAuto ? all / 2 : std::min(workers, all - 1);
    ranks = RanksThatDivide(config, apart ? all - others : all);
  }
  if (workers == kAuto) {
    workers = apart ? all - std::min(ranks, all - 1) : all;
    const bool leaves_one =
        apart ? sharing == GpuSharing::kApartFromRewards && workers > 1 : ranks < all && all > 2;
    if (rewards && leaves_one) --workers;
  }
  config.mutable_learner()->set_ranks(ranks);
  config.mutable_services()->set_rollout_workers(workers);
}

DevicePlan PlanDevices(const v1::RunConfig& config, int gpus) {
  const int ranks = static_cast<int>(std::max(1u, config.learner().ranks()));
  const int workers = static_cast<int>(config.services().rollout_workers());
  const int servers = static_cast<int>(config.services().reward_servers());
  const int own = gpus > 0 ? GpusOfRewards(config, ranks, workers, gpus) : 0;
  const int shared = gpus > 0 ? gpus - own : ranks + workers;
  DevicePlan plan;
  for (int i = 0; i < ranks; ++i) plan.ranks.push_back(i);
  for (int i = 0; i < workers; ++i) plan.workers.push_back((ranks + i) % shared);
  const int last = std::max(1, gpus);
  for (int i = 0; i < servers; ++i) plan.rewards.push_back(last - 1 - i % (own > 0 ? own : last));
  return plan;
}

std::optional<int> GpuOf(const std::string& device, int planned) {
  if (!absl::StartsWith(device, kAnyGpu)) return std::nullopt;
  int number = 0;
  return absl::SimpleAtoi(absl::StripPrefix(device, "cuda:"), &number) ? number : planned;
}

}  // namespace oxbow::config
