#include "core/replay/replacement.h"

#include "base/check.h"

namespace oxbow::replay {
namespace {

Decision Challenge(double candidate_reward, const Occupant& occupant) {
  if (candidate_reward > occupant.priority) return {Verdict::kReplace, occupant.id};
  return {Verdict::kReject, EntryId()};
}

}  // namespace

Decision Decide(const Situation& situation) {
  OXBOW_CHECK(situation.capacity > 0) << "capacity";
  OXBOW_CHECK(situation.lowest.has_value() == (situation.size > 0)) << situation.size;
  if (situation.same_prompt.has_value()) {
    return Challenge(situation.candidate_reward, *situation.same_prompt);
  }
  if (situation.size < situation.capacity) return {Verdict::kInsert, EntryId()};
  return Challenge(situation.candidate_reward, *situation.lowest);
}

}  // namespace oxbow::replay
