// The actor-learner system in virtual time: one learner that plans, waits for its groups, updates
// and publishes; workers that fetch weights, take leases, sample, have the result scored and send
// it; all of them may die. Discrete events, no clock; a result depends on the model alone.
//
// Left out on purpose: a relay that dies in the middle of a transfer (its children would ask
// another), prompts and replayed heads (all groups cost the same in the mean), and congestion
// anywhere but at the learner's links, the reward servers and the coordinator.
#pragma once

#include "absl/status/statusor.h"
#include "core/simulate/outcome.h"
#include "core/simulate/run_model.h"

namespace oxbow::simulate {

// Runs until model.steps are committed. kInvalidArgument as Validate; kOutOfRange if that takes
// more than `events_max` events, as it does when failures come faster than checkpoints.
absl::StatusOr<Outcome> Simulate(const RunModel& model, uint64_t events_max = 1'000'000'000);

}  // namespace oxbow::simulate
