// SPDX-License-Identifier: Apache-2.0
// The rules of a table of the replay buffer: what enters, what leaves, what is drawn.
//
//   best      at most one entry per prompt, the better one; the lowest leaves; drawn uniformly or
//             by weight. A draw is stored: a step that asks again gets the same entries, and they
//             stay readable until it commits
//   queues    what comes is appended, and the oldest leaves for it; with kAppendPerPrompt an entry
//             also removes the one of its prompt. A draw stores nothing
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "core/replay/draw.h"

namespace oxbow::replay {

inline constexpr char kBestTable[] = "best";
inline constexpr char kHardPrompts[] = "hard_prompts";    // Entries without latents.
inline constexpr char kRecentGroups[] = "recent_groups";  // An entry is a whole group.

enum class InsertPolicy { kBetter, kAppend, kAppendPerPrompt };
enum class EvictPolicy { kLowest, kOldest };
enum class DrawPolicy {
  kUniform,
  kOldest,
  kPriority,  // In proportion to the priority above the floor.
  kNewest,
  kLearnable,  // In proportion to Learnability of what regenerations have shown.
  kBest,       // The highest values first; of equal ones the newest.
  kVaried,     // Those whose values have the greatest variance together.
};

struct TablePolicy {
  std::string name;
  InsertPolicy insert = InsertPolicy::kAppend;
  EvictPolicy evict = EvictPolicy::kOldest;
  DrawPolicy draw = DrawPolicy::kOldest;
  DrawLimits limits = {};    // Entries past them stay, but are not drawn.
  bool holds_draws = false;  // Only best: see above.
  uint64_t capacity = 1;
  uint64_t age_max = 0;  // Steps; older entries leave when a step commits. 0: they stay.
};

TablePolicy BestTable(uint64_t capacity, DrawPolicy draw = DrawPolicy::kUniform,
                      const DrawLimits& limits = {});

// Tables for an adapted batch (rl::AdaptBatch): the newest `prompts` hard prompts, and at
// most `groups` groups of the last `steps` learner steps. Tables of size 0 are left out.
std::vector<TablePolicy> AdaptationTables(uint64_t prompts, uint64_t groups, uint64_t steps);

// kInvalidArgument unless the first is best, the others are queues with names of their own, and
// every capacity is at least 1.
absl::Status Validate(const std::vector<TablePolicy>& tables);

const char* NameOf(InsertPolicy policy);
const char* NameOf(EvictPolicy policy);
const char* NameOf(DrawPolicy policy);

// Whether a candidate enters a table of best entries, and which entry it replaces.
//
//   its prompt is stored    replace that entry if the candidate's raw reward > its priority
//   room left               insert
//   otherwise               replace the entry of lowest priority if the raw reward > that priority
//
// Else reject it. Priorities are decayed. On a tie the old entry stays. The first line keeps at
// most one entry per prompt. Candidates are successes (learner/replay/replay_offer.h).

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
