// SPDX-License-Identifier: Apache-2.0
#include "core/replay/replacement.h"

#include "base/check.h"

namespace oxbow::replay {
namespace {

Decision Challenge(const Situation& situation, const Occupant& occupant) {
  const bool better = situation.candidate_reward > occupant.priority;
  return better ? Decision{Verdict::kReplace, occupant.id} : Decision{};
}

}  // namespace

Decision Decide(const Situation& situation) {
  OXBOW_CHECK(situation.capacity > 0) << "capacity";
  OXBOW_CHECK(situation.lowest.has_value() == (situation.size > 0)) << situation.size;
  if (situation.same_prompt.has_value()) {
    return Challenge(situation, *situation.same_prompt);
  }
  if (situation.size < situation.capacity) return {Verdict::kInsert, EntryId()};
  return Challenge(situation, *situation.lowest);
}

}  // namespace oxbow::replay
