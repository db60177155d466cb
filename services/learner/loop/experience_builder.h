// SPDX-License-Identifier: Apache-2.0
// Builds the trainer's groups from received groups and stored heads.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "core/model/velocity_model.h"
#include "core/rl/experience.h"
#include "services/learner/coordinator/group_assembler.h"
#include "services/learner/plan/step_plan.h"

namespace oxbow::learner {

// The trainer's group. A head that is whole becomes its last member. Any other replayed member
// becomes complete: the buffer gives its head (latents, log-probs, SDE flags and versions of the
// steps below i_off), the worker its tail. kInvalidArgument if the parts do not fit together.
absl::StatusOr<rl::Group> BuildGroup(const v1::Group& received, const PlannedGroup& planned,
                                     const model::Conditioning& conditioning);

// The same group on a rank that does not hold it: latents are on the meta device and have only a
// shape; there is no conditioning.
absl::StatusOr<rl::Group> BuildOutline(const v1::Group& received, const PlannedGroup& planned);

}  // namespace oxbow::learner
