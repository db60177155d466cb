// SPDX-License-Identifier: Apache-2.0
#include "services/learner/publish/publication_gate.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace oxbow::learner {

void PublicationGate::Evaluated(double reward) {
  last_ = reward;
  best_ = std::max(best_, reward);
}

bool PublicationGate::collapsed() const {
  return options_.reward_floor > 0 && best_ > 0 && last_.has_value() &&
         *last_ < options_.reward_floor * best_;
}

absl::StatusOr<bool> PublicationGate::Admit(LearnerStep committed) {
  if (!published_.has_value() || !collapsed()) {
    published_ = committed;
    return true;
  }
  if (committed.value <= published_->value + options_.staleness_max) return false;
  return absl::FailedPreconditionError(
      absl::StrCat("held-out reward collapsed and the weights of step ", published_->value,
                   " are too old to go on with: resume from an earlier checkpoint or lower "
                   "publish.reward_floor; step ",
                   committed.value, ", reward ", *last_, ", best ", best_));
}

}  // namespace oxbow::learner
