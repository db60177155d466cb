// SPDX-License-Identifier: Apache-2.0
#include "services/learner/rollout_numbers.h"

#include <cstdint>
#include <set>
#include <utility>

#include "core/flow/compression.h"
#include "metrics/step_metrics.h"
#include "rpc/convert.h"
#include "run/rewards.h"

namespace oxbow::learner {

void MeasureProduction(const std::vector<ReceivedGroup>& received,
                       std::map<std::string, double>& numbers) {
  std::set<std::pair<std::string, double>> batches;
  std::set<std::string> workers;
  double reward_seconds = 0;
  double sampled = 0;
  double fresh = 0;
  double in_flight = 0;
  for (const ReceivedGroup& item : received) {
    if (item.group.trajectories().empty()) continue;
    ++sampled;
    batches.emplace(item.group.worker_id(), item.group.sample_seconds());
    workers.insert(item.group.worker_id());
    reward_seconds += item.group.reward_seconds();
    for (const v1::Trajectory& sample : item.group.trajectories()) {
      if (sample.replayed()) continue;
      const auto& versions = sample.behaviour_version();
      ++fresh;
      in_flight += !versions.empty() && versions[0] != versions[versions.size() - 1] ? 1 : 0;
    }
  }
  double sample_seconds = 0;
  for (const auto& [worker, seconds] : batches) sample_seconds += seconds;
  numbers[metric::kRolloutWorkers] = static_cast<double>(workers.size());
  numbers[metric::kRolloutBatches] = static_cast<double>(batches.size());
  numbers[metric::kRolloutInFlightShare] = fresh > 0 ? in_flight / fresh : 0;
  numbers[metric::kRolloutSampleS] = sample_seconds;
  numbers[metric::kRolloutRewardSMean] = reward_seconds / sampled;
}

Sampled& Sampled::operator+=(const Sampled& other) {
  samples += other.samples;
  steps += other.steps;
  latent_bytes += other.latent_bytes;
  return *this;
}

Sampled SampledFor(const v1::Group& group, const SamplingForm& form) {
  Sampled sampled{.samples = static_cast<double>(group.trajectories_size())};
  if (!form.splits.empty() && group.trajectories_size() > 0) {
    sampled.steps = static_cast<double>(flow::NodesOfGroup(
        form.splits, form.group_size, StepsSampled(group.trajectories(0), form.compression)));
  }
  for (const v1::Trajectory& sample : group.trajectories()) {
    if (form.splits.empty()) sampled.steps += StepsSampled(sample, form.compression);
    const auto bytes = rpc::DeclaredBytes(sample.latents(), uint64_t{1} << 40);
    if (bytes.ok()) sampled.latent_bytes += static_cast<double>(*bytes);
  }
  return sampled;
}

int StepsSampled(const v1::Trajectory& sample, double share) {
  const int first = sample.replayed() ? static_cast<int>(sample.kept_steps()) : 0;
  return flow::StepsTaken(share, {sample.sde().begin(), sample.sde().end()}, first);
}

void CountObservedFailures(const v1::RewardConfig& config,
                           const std::vector<ReceivedGroup>& received,
                           std::map<std::string, double>& numbers) {
  std::map<std::string, uint64_t> failures;
  for (const ReceivedGroup& item : received) {
    run::CountObservedFailures(config, item.group, failures);
  }
  for (const auto& [name, count] : failures) {
    numbers[metric::kTrainRewardNameFailed.Of(name)] = static_cast<double>(count);
  }
}

}  // namespace oxbow::learner
