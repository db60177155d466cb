// Forward and backward over some rows of an update: their share of the loss, into the gradient.
#pragma once

#include <cstddef>
#include <vector>

#include "core/rl/experience.h"
#include "core/rl/row_batch.h"
#include "core/rl/step_plan.h"
#include "core/rl/trainer.h"

namespace oxbow::model {
class Policy;
}

namespace oxbow::rl {

// A row of the plan together with its address.
struct RowRef {
  RowAddress address;
  PlannedSample* sample = nullptr;
  PlannedRow* row = nullptr;
  bool in_kl = false;
};

std::vector<RowAddress> AddressesOf(const std::vector<RowRef>& refs);

// What an update divides by.
struct LossDenominators {
  double policy = 1;  // Samples per update times trained steps.
  double kl = 1;      // Samples per update, times trained steps where every step is anchored.
};

// What one row brought.
struct RowOutcome {
  double log_ratio = 0;    // lp under the current policy minus the clip's centre.
  double policy_loss = 0;  // Not divided.
  double kl = 0;           // Not divided; 0 for a row outside the KL.
};

// Adds the gradient of
//
//   sum_rows policy_loss / denominators.policy + kl_weight sum_{rows in_kl} kl / denominators.kl
//
// to the policy's flat gradient and returns one outcome per row. The KL term is not multiplied by
// W, which would weaken the pull where the policy has moved most. Requires at least one row.
std::vector<RowOutcome> AddGradient(const TrainerOptions& options, model::Policy& policy,
                                    const std::vector<Group>& groups,
                                    const std::vector<RowRef>& refs,
                                    const LossDenominators& denominators);

}  // namespace oxbow::rl
