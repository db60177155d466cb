// The actor-learner system in virtual time. One learner plans, waits for its groups, updates and
// publishes. Workers fetch weights, take leases, sample, have the result scored and send it. All of
// them may die. Leases are those of the real lease table (core/lease). Discrete events; the result
// depends on the model alone.
//
// Left out on purpose: a relay that dies in the middle of a transfer (its children would ask
// another), prompts and replayed heads (all groups cost the same in the mean), and congestion
// except at the learner's links, the reward servers and the coordinator.
#pragma once

#include "absl/status/statusor.h"
#include "simulate/outcome.h"
#include "simulate/run_model.h"

namespace oxbow::simulate {

// Runs until model.steps are committed. kInvalidArgument as Validate; kUnavailable if a group fails
// too often, which ends a real run as well; kResourceExhausted if the run takes more than
// `events_max` events, as it does when failures come faster than checkpoints.
absl::StatusOr<Outcome> Simulate(const RunModel& model, uint64_t events_max = 1'000'000'000);

}  // namespace oxbow::simulate
