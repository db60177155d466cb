// SPDX-License-Identifier: Apache-2.0
// The entries that a step gives to the replay buffer, and its findings about those that are there.
// Pure.
//
//   MakeOffer        the best fresh sample of a group (ties: the lowest index), never a replayed
//                    one, whose head is not of one policy version, and only a success: its group's
//                    fresh samples differ, and it is better than the mean of all. The entry keeps
//                    per-step log-probs, the noise levels and the latents that a replay needs: from
//                    the first stochastic step to the successor of the last one before i_off; or
//                    only the final latent, where training noises images again
//   RegenerationOf   a stored head was once the path of a success. Its tail is of the present
//                    policy, so its new picture may be worse. A regeneration *failed* if its reward
//                    is below that of the entry's first picture and no better than the mean of the
//                    fresh samples beside it: the head then brings its group nothing that the
//                    policy does not have
//   the others       queues for later batches (core/replay/table_policy.h): prompts that nearly
//                    always failed, and whole groups
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "core/flow/window.h"
#include "oxbow/v1/common.pb.h"
#include "oxbow/v1/replay_buffer.pb.h"
#include "services/buffer/replay_client.h"
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

// Mean reward of the members whose reward did not fail, and of the fresh ones among them. Nothing
// if there is none.
std::optional<double> MeanReward(const v1::Group& group);
std::optional<double> FreshMean(const v1::Group& group);

// Where several branches go on from one head, their mean counts. Nothing for a group without a
// replayed sample that has a score. The entry takes its new reward.
std::optional<buffer::Rescored> RegenerationOf(const v1::Group& group);

// The group's prompt as an entry of `hard_prompts`, born in the step that trained it.
v1::ReplayEntry HardPromptEntry(const PlannedGroup& planned, double mean, const OfferRules& rules);

// The group with all its latents as an entry of `recent_groups`, with its best sample's picture.
// Nothing if it brought no latents of one kind. Requires that the latents' bytes are in the group.
std::optional<v1::ReplayEntry> GroupEntry(const v1::Group& group, const PlannedGroup& planned,
                                          double mean, const OfferRules& rules);

// The group that GroupEntry made an entry of, with its bytes. kDataLoss if they do not fit
// together.
absl::StatusOr<v1::Group> GroupOfEntry(v1::ReplayEntry entry);

// Gives the members of a group that has only their shapes their latent bytes, which are one after
// another. kDataLoss if they do not fit together.
absl::Status TakeLatents(const std::string& latents, v1::Group& group);

}  // namespace oxbow::learner
