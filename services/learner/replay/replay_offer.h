// SPDX-License-Identifier: Apache-2.0
// The trajectory of a group that goes to the replay buffer, and what is kept of it. Pure.
//
// The best fresh sample is offered (ties: the lowest index), never a replayed one, whose head is
// not of one policy version, and only a success: its group's fresh samples differ, and it is better
// than the mean of all. The entry keeps per-step log-probs, the noise levels
// and the latents that a replay needs: from the first stochastic step to the successor of the last
// one before i_off; or only the final latent, where training noises images again.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "core/flow/window.h"
#include "oxbow/v1/common.pb.h"
#include "oxbow/v1/replay_buffer.pb.h"
#include "services/learner/plan/step_plan.h"

namespace oxbow::learner {

struct OfferRules {
  uint64_t run_seed = 0;
  int kept_steps = 0;          // i_off
  bool images = false;         // Keep final latents, not heads: training noises them again.
  std::vector<double> sigmas;  // T + 1
};

// Unique in a buffer, which belongs to one run; the same for a repeated attempt at the same sample.
// Draws follow from ids, so an id follows from the seed alone and not from the run's name. Never 0.
EntryId EntryIdOf(const OfferRules& rules, GroupId group, uint32_t sample);

// The latents of a trajectory's head: from its first stochastic step to the successor of the last
// one before `kept_steps`, as far as the trajectory has them. Empty if there is no such step.
flow::LatentSpan HeadSpan(const v1::Trajectory& trajectory, int kept_steps);

// The final latent, whatever steps led to it. Empty if the trajectory ends before.
flow::LatentSpan ImageSpan(const v1::Trajectory& trajectory);

// The group must have been accepted (CheckGroup). Nothing if no fresh sample was scored, or if none
// of its stochastic steps comes before i_off: its head would have no density.
std::optional<v1::ReplayEntry> MakeOffer(const v1::Group& group, const PlannedGroup& planned,
                                         const OfferRules& rules);

}  // namespace oxbow::learner
