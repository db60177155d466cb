// SPDX-License-Identifier: Apache-2.0
// A run as the simulator sees it: how much of everything there is, the rules, and what each part
// costs. Units are seconds, bytes and bytes per second; a link of 0 bytes per second has no limit.
//
// A denoising batch of n groups takes (batch_s + n group_s) c f seconds: c the worker's own factor,
// lognormal with `worker_spread`; f lognormal with `spread` (so the parenthesis is the median), and
// straggler_factor times that for a share straggler_share of the batches. Applying weights takes
// apply_s c f.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "core/lease/lease_times.h"

namespace oxbow::simulate {

// Seconds that bytes take on a link.
inline double Transfer(double bytes, double bytes_per_second) {
  return bytes_per_second > 0 ? bytes / bytes_per_second : 0;
}

struct Costs {
  // A worker.
  double batch_s = 0;
  double group_s = 1;
  double spread = 0;
  double straggler_share = 0;
  double straggler_factor = 1;
  double worker_spread = 0;
  double linger_s = 0;  // An idle worker waits this long for more leases before it takes a batch.
  double apply_s = 0;   // New weights: verification, probe, swap; the worker samples nothing then.
  // The rewards of one group occupy a reward server for reward_s and take reward_latency_s more.
  double reward_s = 0;
  double reward_latency_s = 0;
  // One update of the learner: update_s + ceil(U / R) update_group_s + the gradients' all-reduce.
  double update_s = 0;
  double update_group_s = 0;
  double publish_s = 0;     // Hashing and announcing; the learner does nothing else meanwhile.
  double plan_s = 0;        // After publication, before groups of the next step can be leased.
  double finish_s = 0;      // Logging, while workers sample.
  double eval_s = 0;        // Every eval_every steps, while workers sample.
  double checkpoint_s = 0;  // Every checkpoint_every steps, while workers sample.
  double gradient_bytes = 0;
  double updates = 1;                // All-reduces per step.
  double exposed_share = 1;          // Share of the all-reduce that no computation hides.
  double rank_link_bytes_per_s = 0;  // Between ranks, each direction.
  // Network.
  double latency_s = 0;     // One way.
  double weight_bytes = 0;  // Bytes that a publication changes.
  double relay_bytes = 0;   // A relay passes weights on in pieces of this size; 0: all at once.
  double group_bytes = 0;   // One group's experience.
  double conditioning_bytes = 0;  // One prompt's conditioning as it travels.
  // Share of leases whose conditioning the learner sends: neither the worker nor another one has
  // it. 1 while all prompts are new to the fleet, near 0 when it has seen them.
  double conditioning_new_share = 1;
  double learner_link_bytes_per_s = 0;  // Each learner host, each direction.
  double worker_link_bytes_per_s = 0;
  // The coordinator's own time per message (lease, renewal, result, report).
  double message_s = 0;
  // From death to the next registration.
  double worker_restart_s = 60;
  double learner_restart_s = 120;
};

// The settings of Costs by name, for files, flags and messages.
struct CostField {
  const char* name;
  double Costs::*value;
};
std::span<const CostField> CostFields();

struct RunModel {
  uint64_t seed = 0;
  uint64_t steps = 100;
  uint32_t workers = 1;
  uint32_t ranks = 1;             // R, learner ranks, each on a host with its own link.
  uint64_t groups_per_step = 8;   // U
  uint64_t group_size = 8;        // G, images per group.
  uint64_t staleness_max = 0;     // S
  uint64_t publish_every = 1;     // v
  uint32_t groups_in_flight = 2;  // Leases a worker holds at most.
  uint32_t batch_groups_max = 0;  // Groups in one denoising batch; 0: all that wait.
  uint32_t weight_fanout = 0;     // Copies that the learner and each relay send; 0: no relays.
  uint32_t reward_servers = 0;    // 0: enough.
  double lease_s = 30;
  double silent_share = 0;       // Deaths that break no stream: the leases have to expire.
  double failures_per_hour = 0;  // Deaths of one worker.
  double stalls_per_hour = 0;    // Stalls of one worker; each lasts stall_s.
  double stall_s = 60;
  double group_failure_share = 0;        // Share of groups that fail, for example their rewards.
  double learner_failures_per_hour = 0;  // Deaths of one rank; each takes all ranks down.
  uint64_t checkpoint_every = 25;        // Learner steps; 0: never.
  uint64_t eval_every = 0;               // Learner steps; 0: never.
  lease::StragglerRule stragglers;       // Groups that are leased to an idle worker too.
  lease::AgeRule ages;                   // How long a worker may renew a lease.
  Costs costs;
};

// kInvalidArgument names the setting that is impossible.
absl::Status Validate(const RunModel& model);

// Seconds of one learner step's update: computation on the rank with the most groups, and the
// exposed part of the gradients' ring all-reduce, 2 (R - 1) / R gradient_bytes over each link.
double UpdateSeconds(const RunModel& model);

// Seconds from publication until worker `index` of the tree has all changed weights. The learner
// sends to weight_fanout workers, each of those to weight_fanout more; without relays all share its
// link.
double FetchSeconds(const RunModel& model, uint32_t index);

// The same for a worker that joins later and fetches from the learner while no other worker does.
double JoinSeconds(const RunModel& model);

// Whether the learner itself sends worker `index` its copy.
bool LearnerServes(const RunModel& model, uint32_t index);

// Costs to start from: those of one measured run, and assumptions for runs that were never measured
// with this program, with their arithmetic. The assumptions show what breaks first, not how long a
// step takes; `oxbow simulate --from-run` measures.
struct Preset {
  std::string name;
  std::string meaning;     // One line.
  std::string assumption;  // Where the times come from.
  // Costs, batch sizes and ranks. Weight fan-out, lease time and the stragglers' rule have their
  // defaults elsewhere (configs/defaults.yaml); the caller sets them.
  RunModel model;
};

const std::vector<Preset>& Presets();
std::optional<Preset> FindPreset(const std::string& name);

}  // namespace oxbow::simulate
