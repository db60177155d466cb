// Forward and backward over some rows of an update: their share of the loss, into the gradient.
#pragma once

#include <cstddef>
#include <vector>

#include "core/rl/experience.h"
#include "core/rl/method.h"
#include "core/rl/options.h"
#include "core/rl/row_batch.h"

namespace oxbow::rl {

// What an update divides by.
struct LossDenominators {
  double policy = 1;   // Samples per update times rows per sample.
  double kl = 1;       // Samples per update, times rows per sample where every row is in the KL.
  double samples = 1;  // Per update.
};

// What one row brought. Losses are not divided.
struct RowOutcome {
  double log_ratio = 0;  // Of the ratio that is clipped.
  double policy_loss = 0;
  double kl = 0;      // To the reference; 0 for a row outside the KL.
  double old_kl = 0;  // To the old policy.
  double anchor = 0;  // Of the row's sample, on its first row.
};

// Adds the gradient of
//
//   sum_rows (policy_loss + old_kl_weight old_kl) / denominators.policy
//     + kl_weight sum_{rows in_kl} kl / denominators.kl
//     + anchor.weight sum_samples anchor / denominators.samples
//
// to the policy's flat gradient and returns one outcome per row. The KL terms are not multiplied by
// W, which would weaken the pull where the policy has moved most. Requires at least one row.
std::vector<RowOutcome> AddGradient(const TrainerOptions& options, model::Policy& policy,
                                    const Method& method, const std::vector<Group>& groups,
                                    const std::vector<RowRef>& refs,
                                    const LossDenominators& denominators);

}  // namespace oxbow::rl
