#include "services/learner/replay/regenerations.h"

namespace oxbow::learner {
namespace {

std::optional<double> FreshMean(const v1::Group& group) {
  double sum = 0;
  double count = 0;
  for (const v1::Trajectory& trajectory : group.trajectories()) {
    if (trajectory.replayed() || trajectory.reward_failed()) continue;
    sum += trajectory.reward();
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional(sum / count);
}

}  // namespace

std::optional<buffer::Rescored> RegenerationOf(const v1::Group& group, bool refresh) {
  for (const v1::Trajectory& trajectory : group.trajectories()) {
    if (!trajectory.replayed() || trajectory.reward_failed()) continue;
    const double reward = trajectory.reward();
    const std::optional<double> fresh = FreshMean(group);
    return buffer::Rescored{
        .entry = EntryId(trajectory.entry_id()),
        .reward = refresh ? std::optional(reward) : std::nullopt,
        .failed = reward < trajectory.stored_reward() && (!fresh.has_value() || reward <= *fresh)};
  }
  return std::nullopt;
}

}  // namespace oxbow::learner
