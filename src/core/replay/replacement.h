// SPDX-License-Identifier: Apache-2.0
// Whether a candidate enters a table of best entries, and which entry it replaces.
//
//   its prompt is stored    replace that entry if the candidate's raw reward > its priority
//   room left               insert
//   otherwise               replace the entry of lowest priority if the raw reward > that priority
//
// Else reject it. Priorities are decayed. On a tie the old entry stays. The first line keeps at
// most one entry per prompt. Candidates are successes (learner/replay/replay_offer.h).
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
