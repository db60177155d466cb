// SPDX-License-Identifier: Apache-2.0
// Forward and backward over some rows of an update: their share of the loss, into the gradient.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "core/rl/experience.h"
#include "core/rl/method.h"
#include "core/rl/options.h"
#include "core/rl/row_batch.h"

namespace oxbow::model {
class Policy;
}

namespace oxbow::rl {

// The divisors in an update's loss.
struct LossDenominators {
  double policy = 1;  // Samples per update times rows per sample.
  double kl = 1;      // Samples per update, times rows per sample where every row is in the KL.
  double trajectories = 1;  // Per update.
};

// Inputs that the rows of an update have in common.
struct UpdateInputs {
  LearnerStep step;
  const std::vector<Group>& groups;
  LossDenominators denominators;
  std::function<bool()> interrupted = {};  // As for Trainer::Step.
};

// The terms of one row's loss, not divided.
struct RowOutcome {
  double log_ratio = 0;  // The log of the ratio that is clipped.
  double policy_loss = 0;
  double kl = 0;            // To the reference; 0 for a row outside the KL.
  double kl_precedent = 0;  // To the policy before the step; as kl.
  double old_kl = 0;        // To the old policy.
  double centre_error = 0;  // The clip's centre minus the worker's log-prob.
  double anchor = 0;        // The anchor pull of the row's sample, on its first row.
  double surrogate = 0;     // As RowTerms has it, above 0; 0: none.
};

// Adds the gradient of
//
//   sum_rows (policy_loss + old_kl_weight old_kl) / denominators.policy
//     + kl.weight sum_{rows in_kl} ((1 - p) kl + p kl_precedent) / denominators.kl
//     + anchor.weight sum_samples anchor / denominators.samples
//
// with p = kl.precedent, to the policy's flat gradient, and returns one outcome per row. The KL
// terms are not multiplied by W, which would weaken the pull where the policy has moved most.
// Requires at least one row.
std::vector<RowOutcome> AddGradient(const TrainerOptions& options, model::Policy& policy,
                                    const Method& method, const UpdateInputs& inputs,
                                    const std::vector<RowRef>& refs);

}  // namespace oxbow::rl
