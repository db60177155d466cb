#include "services/learner/desk/replay_offer.h"

#include <algorithm>

#include "base/check.h"
#include "base/philox.h"

namespace oxbow::learner {
namespace {

bool RewardsDiffer(const v1::Group& group) {
  std::optional<double> first;
  for (const v1::Trajectory& trajectory : group.trajectories()) {
    if (trajectory.reward_failed()) continue;
    if (first.has_value() && trajectory.reward() != *first) return true;
    first = trajectory.reward();
  }
  return false;
}

}  // namespace

const v1::Trajectory* BestFresh(const v1::Group& group) {
  const v1::Trajectory* best = nullptr;
  for (const v1::Trajectory& trajectory : group.trajectories()) {
    if (trajectory.replayed() || trajectory.reward_failed()) continue;
    const bool better =
        best == nullptr || trajectory.reward() > best->reward() ||
        (trajectory.reward() == best->reward() && trajectory.sample() < best->sample());
    if (better) best = &trajectory;
  }
  return best;
}

EntryId EntryIdOf(const OfferRules& rules, GroupId group, uint32_t sample) {
  const uint64_t run = Mix64(Mix64(rules.run_seed) ^ rules.run_fingerprint);
  const uint64_t id = Mix64(Mix64(run ^ group.value) ^ sample);
  return EntryId(id == 0 ? 1 : id);
}

std::optional<buffer::EntryWithLatents> MakeOffer(const v1::Group& group,
                                                  const PlannedGroup& planned,
                                                  const OfferRules& rules) {
  if (rules.requires_std && !RewardsDiffer(group)) return std::nullopt;
  const v1::Trajectory* best = BestFresh(group);
  if (best == nullptr) return std::nullopt;
  const int64_t held = best->latents().shape(0);
  const int64_t wanted = std::min<int64_t>(held, rules.transitions + 1);
  buffer::EntryWithLatents offer;
  v1::ReplayEntry& header = offer.header;
  header.set_entry_id(EntryIdOf(rules, planned.id, best->sample()).value);
  *header.mutable_prompt() = planned.prompt;
  *header.mutable_conditioning() = planned.conditioning;
  header.set_birth_step(planned.step.value);
  header.set_raw_reward(best->reward());
  header.set_group_id(planned.id.value);
  header.mutable_sigmas()->Add(rules.sigmas.begin(), rules.sigmas.end());
  v1::Trajectory& kept = *header.mutable_trajectory();
  kept = *best;
  kept.mutable_latents()->clear_data();
  kept.mutable_latents()->set_shape(0, wanted);
  const size_t bytes =
      best->latents().data().size() / static_cast<size_t>(held) * static_cast<size_t>(wanted);
  offer.latents = best->latents().data().substr(0, bytes);
  return offer;
}

}  // namespace oxbow::learner
