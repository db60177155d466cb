// SPDX-License-Identifier: Apache-2.0
// The actor-learner system in virtual time. One learner plans, waits for its groups, updates and
// publishes. Workers fetch weights, take leases, sample, have the result scored and send it. All of
// them may die. Leases are those of the real lease table (core/lease). Discrete events; the result
// depends on the model alone.
//
// Left out on purpose: a relay that dies in the middle of a transfer (its children would ask
// another), prompts and replayed heads (all groups cost the same in the mean), and congestion
// except at the learner's links, the reward servers and the coordinator.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "simulate/run_model.h"

namespace oxbow::simulate {

// granted = accepted + failed + expired + superseded + dropped + in_flight
struct LeaseCounts {
  uint64_t granted = 0;
  uint64_t second = 0;  // Second leases of stragglers; they are among `granted`.
  uint64_t accepted = 0;
  uint64_t failed = 0;
  uint64_t expired = 0;
  uint64_t superseded = 0;
  uint64_t dropped = 0;    // Ended by a restart of the learner.
  uint64_t in_flight = 0;  // Live at the end.
};

// Where the learner's time went; the parts sum to wall_s.
struct LearnerTime {
  double update_s = 0;         // Updates of steps that are in committed history.
  double lost_s = 0;           // Updates that a restart threw away.
  double wait_rollouts_s = 0;  // A worker produces groups for it.
  double wait_weights_s = 0;   // No worker does: weights, leases or workers are on their way.
  double publish_s = 0;
  double other_s = 0;  // Planning, logging, evaluation, checkpoints.
  double down_s = 0;
};

// Sampling time without an accepted result, by reason.
struct DiscardedTime {
  double death_s = 0;      // The worker died with it.
  double expiry_s = 0;     // The lease had ended when the result came.
  double duplicate_s = 0;  // The group's other lease was first.
  double failure_s = 0;    // The group failed, for example without rewards.
  double restart_s = 0;    // The learner came back from an earlier checkpoint.
  double total_s() const { return death_s + expiry_s + duplicate_s + failure_s + restart_s; }
};

// The result of a simulated run. Seconds are virtual.
struct Outcome {
  double wall_s = 0;
  uint64_t steps = 0;
  uint64_t samples = 0;  // Images trained on, in committed history.
  LearnerTime learner;
  double useful_s = 0;  // Sampling time of groups in committed history or waiting for their step.
  DiscardedTime discarded;
  double in_flight_s = 0;     // Sampling time of results not yet delivered at the end.
  double staleness_mean = 0;  // Learner steps, over groups trained on.
  uint64_t staleness_max = 0;
  LeaseCounts leases;
  uint64_t messages = 0;  // To and from the coordinator.
  double coordinator_busy_s = 0;
  double worker_down_s = 0;  // Sum over workers.
  double sampling_s = 0;     // Sum over workers.
  double reward_busy_s = 0;  // Sum over reward servers.
  double ingest_busy_s = 0;  // Sum over learner hosts' links.
  double learner_egress_bytes = 0;
  double ingest_bytes = 0;
  uint64_t worker_deaths = 0;
  uint64_t learner_deaths = 0;
  uint64_t steps_repeated = 0;  // Steps that a restart threw away.
  uint64_t events = 0;

  double step_s() const { return wall_s / static_cast<double>(steps); }
  // Share of the wall time in updates that count.
  double utilisation() const { return learner.update_s / wall_s; }
  double discarded_share() const {
    const double all = useful_s + discarded.total_s();
    return all > 0 ? discarded.total_s() / all : 0;
  }
};

// The part most waited for: "the learner", "rollouts", "the slowest groups of a step", "too few
// groups for the workers", "weights", "rewards", "ingest", "the coordinator" or "restarts of the
// learner".
const char* LimitOf(const RunModel& model, const Outcome& outcome);

// Runs until model.steps are committed. kInvalidArgument as Validate; kUnavailable if a group fails
// too often, which ends a real run as well; kResourceExhausted if the run takes more than
// `events_max` events, as it does when failures come faster than checkpoints.
absl::StatusOr<Outcome> Simulate(const RunModel& model, uint64_t events_max = 1'000'000'000);

}  // namespace oxbow::simulate
