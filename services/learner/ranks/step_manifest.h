// SPDX-License-Identifier: Apache-2.0
// The frozen manifest of a step as rank 0 tells it to the other ranks: all groups without their
// latents, and for each rank the stored heads of the mixed groups it holds. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "oxbow/v1/learner_ranks.pb.h"
#include "services/learner/plan/step_rule.h"

namespace oxbow::learner {

// Rank 0 and the others say so often that they are alive.
inline constexpr absl::Duration kAliveEvery = absl::Seconds(1);

// `groups` by group id.
v1::StepManifest MakeManifest(LearnerStep step, const StepGroups& groups, int ranks);

// The manifest in messages of at most about `bytes_max`, however many groups a step has; a group is
// never cut. All but the last say that more follows.
std::vector<v1::RankCommand> InPieces(const v1::StepManifest& manifest,
                                      size_t bytes_max = size_t{4} << 20);

// Puts pieces together again, in their order. True when `whole` is whole.
bool AddPiece(v1::StepManifest piece, v1::StepManifest& whole);

// The latent bytes of the heads of the groups of rank `rank` and of the stored groups that it
// trains, in pieces, in the order of groups.
std::vector<v1::RankCommand> HeadsFor(int rank, int ranks, const StepGroups& groups);

// The part of a planned group that a rank needs to build it: prompt and head.
PlannedGroup PlannedFrom(LearnerStep step, const v1::StepManifest::Item& item);

// The trajectories of a group whose latent bytes and pictures rank 0 is to have: none, the one that
// may be offered to the replay buffer, or all.
enum class KeptLatents { kNone, kOffer, kAll };

// The group without the latent bytes of the others. Shapes stay.
v1::Group WithoutLatents(const v1::Group& group, KeptLatents kept = KeptLatents::kNone);

}  // namespace oxbow::learner
