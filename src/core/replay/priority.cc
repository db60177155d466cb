// SPDX-License-Identifier: Apache-2.0
#include "core/replay/priority.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace oxbow::replay {

absl::Status Validate(const Decay& decay) {
  if (!std::isfinite(decay.floor)) {
    return absl::InvalidArgumentError(
        absl::StrCat("replay.reward_floor must be finite: ", decay.floor));
  }
  if (decay.form == DecayForm::kMultiplicative && !(decay.rate > 0 && decay.rate <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("replay.decay_rate must be in (0, 1] for multiplicative decay: ", decay.rate));
  }
  if (decay.form == DecayForm::kSubtractive && !(decay.rate >= 0 && std::isfinite(decay.rate))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "replay.decay_rate must be finite and not negative for subtractive decay: ", decay.rate));
  }
  return absl::OkStatus();
}

uint64_t AgeAt(LearnerStep now, LearnerStep birth) {
  return now > birth ? now.value - birth.value : 0;
}

double PriorityAt(const Decay& decay, double reward, uint64_t age) {
  const double steps = static_cast<double>(age);
  if (decay.form == DecayForm::kSubtractive) return reward - decay.rate * steps;
  // The sum may round past the reward itself, and a tie must stay a tie.
  const double factor = std::pow(decay.rate, reward > decay.floor ? steps : -steps);
  return factor == 1 ? reward : std::min(reward, decay.floor + factor * (reward - decay.floor));
}

PriorityKey KeyOf(const Decay& decay, double reward, LearnerStep birth, EntryId id) {
  OXBOW_CHECK(std::isfinite(reward)) << id << " " << reward;
  const double steps = static_cast<double>(birth.value);
  if (decay.form == DecayForm::kSubtractive) return {0, reward + decay.rate * steps, id};
  if (reward == decay.floor) return {1, 0, id};
  const double newer = -steps * std::log(decay.rate);
  if (reward < decay.floor) return {0, newer - std::log(decay.floor - reward), id};
  return {2, newer + std::log(reward - decay.floor), id};
}

}  // namespace oxbow::replay
