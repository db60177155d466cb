// SPDX-License-Identifier: Apache-2.0
#include "services/learner/replay/replay_offer.h"

#include <algorithm>

#include "base/check.h"
#include "base/philox.h"
#include "rpc/convert.h"
#include "services/learner/replay/regenerations.h"

namespace oxbow::learner {
namespace {

// Whether the best fresh sample of a group says more than luck: a replayed success beside it is no
// evidence for it, and a bar to pass.
bool IsSuccess(const v1::Group& group, double best) {
  bool differ = false;
  double sum = 0;
  double count = 0;
  for (const v1::Trajectory& trajectory : group.trajectories()) {
    if (trajectory.reward_failed()) continue;
    differ |= !trajectory.replayed() && trajectory.reward() != best;
    sum += trajectory.reward();
    ++count;
  }
  return differ && best > sum / count;
}

}  // namespace

flow::LatentSpan HeadSpan(const v1::Trajectory& trajectory, int kept_steps) {
  if (trajectory.latents().shape_size() == 0) return {};
  const int first = static_cast<int>(trajectory.first_latent());
  const int end = first + static_cast<int>(trajectory.latents().shape(0));
  const int steps = trajectory.sde_size();
  std::vector<bool> usable(trajectory.sde().begin(), trajectory.sde().end());
  for (int i = 0; i < steps; ++i) {
    if (i < first || i + 1 >= end || i >= kept_steps) usable[static_cast<size_t>(i)] = false;
  }
  return flow::SpanOf(usable);
}

flow::LatentSpan ImageSpan(const v1::Trajectory& trajectory) {
  if (trajectory.latents().shape_size() == 0) return {};
  const int steps = trajectory.sde_size();
  const int end =
      static_cast<int>(trajectory.first_latent()) + static_cast<int>(trajectory.latents().shape(0));
  return end == steps + 1 ? flow::LatentSpan{.first = steps, .count = 1} : flow::LatentSpan{};
}

EntryId EntryIdOf(const OfferRules& rules, GroupId group, uint32_t sample) {
  const uint64_t id = Mix64(Mix64(Mix64(Mix64(rules.run_seed)) ^ group.value) ^ sample);
  return EntryId(id == 0 ? 1 : id);
}

std::optional<v1::ReplayEntry> MakeOffer(const v1::Group& group, const PlannedGroup& planned,
                                         const OfferRules& rules) {
  const v1::Trajectory* best = rpc::BestFresh(group);
  if (best == nullptr) return std::nullopt;
  if (!IsSuccess(group, best->reward())) return std::nullopt;
  const flow::LatentSpan head = rules.images ? ImageSpan(*best) : HeadSpan(*best, rules.kept_steps);
  if (head.count == 0) return std::nullopt;
  v1::ReplayEntry offer;
  offer.set_entry_id(EntryIdOf(rules, planned.id, best->sample()).value);
  *offer.mutable_prompt() = planned.prompt;
  offer.set_birth_step(planned.step.value);
  offer.set_raw_reward(best->reward());
  offer.set_group_mean(FreshMean(group).value_or(0));
  offer.set_group_id(planned.id.value);
  offer.mutable_sigmas()->Add(rules.sigmas.begin(), rules.sigmas.end());
  v1::Trajectory& kept = *offer.mutable_trajectory();
  kept = *best;
  kept.mutable_latents()->set_shape(0, head.count);
  kept.set_first_latent(static_cast<uint32_t>(head.first));
  const size_t latent =
      best->latents().data().size() / static_cast<size_t>(best->latents().shape(0));
  const auto skipped = static_cast<size_t>(head.first) - best->first_latent();
  kept.mutable_latents()->set_data(
      best->latents().data().substr(skipped * latent, static_cast<size_t>(head.count) * latent));
  return offer;
}

}  // namespace oxbow::learner
