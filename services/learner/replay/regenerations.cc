// SPDX-License-Identifier: Apache-2.0
#include "services/learner/replay/regenerations.h"

namespace oxbow::learner {
namespace {

// The mean over the samples that are replayed, or over the others.
std::optional<double> MeanOf(const v1::Group& group, bool replayed) {
  double sum = 0;
  double count = 0;
  for (const v1::Trajectory& trajectory : group.trajectories()) {
    if (trajectory.replayed() != replayed || trajectory.reward_failed()) continue;
    sum += trajectory.reward();
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional(sum / count);
}

}  // namespace

std::optional<double> FreshMean(const v1::Group& group) { return MeanOf(group, false); }

std::optional<buffer::Rescored> RegenerationOf(const v1::Group& group) {
  const std::optional<double> reward = MeanOf(group, true);
  if (!reward.has_value()) return std::nullopt;
  const std::optional<double> fresh = FreshMean(group);
  for (const v1::Trajectory& trajectory : group.trajectories()) {
    if (!trajectory.replayed() || trajectory.reward_failed()) continue;
    return buffer::Rescored{.entry = EntryId(trajectory.entry_id()),
                            .reward = reward,
                            .failed = *reward < trajectory.stored_reward() &&
                                      (!fresh.has_value() || *reward <= *fresh)};
  }
  return std::nullopt;
}

}  // namespace oxbow::learner
