// What one learner step trains: which steps of which samples, with which advantage, in which
// update.
//
// A row is one trained step of one sample. Fresh samples train every stochastic step they have;
// stale fresh ones (drawn by an older policy) only steps before i_off; replayed ones their stored
// head and, where it was regenerated stochastically, their tail. Groups without variance and failed
// samples train nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "core/rl/advantage.h"
#include "core/rl/experience.h"
#include "core/rl/ratio_statistics.h"
#include "core/rl/trainer.h"

namespace oxbow::rl {

struct PlannedRow {
  int step = 0;
  bool on_policy = false;  // Drawn by the policy as it is at the start of the step.
  bool in_weight = false;  // Part of W: a kept transition of a trajectory that is not on-policy.
  bool needs_old = false;  // lp_old is to be computed; otherwise the behaviour's is taken.
  float log_prob_behaviour = 0;
  float log_prob_old = 0;  // The clip's centre.
};

struct PlannedSample {
  size_t group = 0;
  size_t sample = 0;
  Origin origin = Origin::kFresh;
  double advantage = 0;
  bool weighted = false;  // W is to be computed.
  double weight = 1;
  std::vector<PlannedRow> rows;
};

struct StepPlan {
  std::vector<GroupAdvantages> groups;
  std::vector<PlannedSample> samples;  // Those that train something.
  std::vector<std::vector<size_t>>
      updates;                  // Indices into `samples`, shuffled by (run seed, step).
  int64_t samples_counted = 0;  // B of the denominator on this rank; see ZeroVariance.
  int trained_steps = 0;        // T_train: stochastic steps of the learner step's window.
};

// Pure. `version` is the policy's at the start of the step.
StepPlan PlanStep(const TrainerOptions& options, LearnerStep step, PolicyVersion version,
                  const std::vector<Group>& groups);

}  // namespace oxbow::rl
