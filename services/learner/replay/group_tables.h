// SPDX-License-Identifier: Apache-2.0
// Entries that the learner keeps in the replay buffer's queues for later batches
// (core/replay/table_policy.h): prompts that nearly always failed, and whole groups. Pure.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "oxbow/v1/replay_buffer.pb.h"
#include "services/learner/plan/step_plan.h"
#include "services/learner/replay/replay_offer.h"

namespace oxbow::learner {

// Mean reward of the members whose reward did not fail. Nothing if all did.
std::optional<double> MeanReward(const v1::Group& group);

// The group's prompt as an entry of `hard_prompts`, born in the step that trained it.
v1::ReplayEntry HardPromptEntry(const PlannedGroup& planned, double mean, const OfferRules& rules);

// The group with all its latents as an entry of `recent_groups`, with its best sample's picture.
// Nothing if it brought no latents of one kind. Requires that the latents' bytes are in the group.
std::optional<v1::ReplayEntry> GroupEntry(const v1::Group& group, const PlannedGroup& planned,
                                          double mean, const OfferRules& rules);

// The group that GroupEntry made an entry of, with its bytes. kDataLoss if they do not fit
// together.
absl::StatusOr<v1::Group> GroupOfEntry(v1::ReplayEntry entry);

}  // namespace oxbow::learner
