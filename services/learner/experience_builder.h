// From what came over the wire and what the buffer kept to what the trainer takes.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "core/model/velocity_model.h"
#include "core/rl/experience.h"
#include "services/learner/desk/group_assembler.h"
#include "services/learner/desk/step_plan.h"

namespace oxbow::learner {

// The trainer's group. A replayed member becomes whole: its head (latents, log-probs, SDE flags and
// versions of steps below i_off) from the buffer, its tail from the worker. kInvalidArgument for
// what does not fit together.
absl::StatusOr<rl::Group> BuildGroup(const v1::Group& received, const PlannedGroup& planned,
                                     const model::Conditioning& conditioning);

// The same group on a rank that does not hold it: latents have their shape on the meta device, and
// there is no conditioning.
absl::StatusOr<rl::Group> BuildOutline(const v1::Group& received, const PlannedGroup& planned);

}  // namespace oxbow::learner
