// Whether a candidate enters the buffer, and at whose expense.
//
//   same prompt stored    candidate's raw reward > its decayed priority ? replace it : reject
//   room left             insert
//   otherwise             candidate's raw reward > the lowest decayed priority ? replace it :
//   reject
//
// Strictly greater: on a tie the old entry stays. At most one entry per prompt follows from the
// first line.
#pragma once

#include <cstdint>
#include <optional>

#include "base/ids.h"

namespace oxbow::replay {

// A stored entry, with its priority decayed to the current step.
struct Occupant {
  EntryId id;
  double priority = 0;
};

struct Situation {
  double candidate_reward = 0;
  std::optional<Occupant> same_prompt;
  std::optional<Occupant> lowest;  // Present whenever size > 0.
  uint64_t size = 0;
  uint64_t capacity = 0;
};

enum class Verdict { kInsert, kReplace, kReject };

struct Decision {
  Verdict verdict = Verdict::kReject;
  EntryId victim;  // Only with kReplace.
};

// Requires capacity > 0.
Decision Decide(const Situation& situation);

}  // namespace oxbow::replay
