// What a named table of the replay buffer takes, lets go of and hands out.
//
//   best    at most one entry per prompt, the better one stays, the lowest leaves; drawn uniformly
//           or by priority
//   queues  what comes is appended, the oldest leaves for it; with kAppendPerPrompt an entry takes
//           the place of its prompt's in the table but not in the line: it goes to the end
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace oxbow::replay {

inline constexpr char kBestTable[] = "best";
inline constexpr char kHardPrompts[] = "hard_prompts";    // Entries without latents.
inline constexpr char kRecentGroups[] = "recent_groups";  // An entry is a whole group.

enum class InsertPolicy { kBetter, kAppend, kAppendPerPrompt };
enum class EvictPolicy { kLowest, kOldest };
enum class DrawPolicy { kUniform, kOldest, kPriority };

struct TablePolicy {
  std::string name;
  InsertPolicy insert = InsertPolicy::kAppend;
  EvictPolicy evict = EvictPolicy::kOldest;
  DrawPolicy draw = DrawPolicy::kOldest;
  uint64_t capacity = 1;
  uint64_t age_max = 0;  // Steps; older entries leave when a step commits. 0: they stay.
};

TablePolicy BestTablePolicy(uint64_t capacity, DrawPolicy draw);

// What an adapted batch is made from (rl::AdaptBatch): the newest `prompts` hard prompts, and at
// most `groups` groups of the last `steps` learner steps. Tables of size 0 are left out.
std::vector<TablePolicy> AdaptationTables(uint64_t prompts, uint64_t groups, uint64_t steps);

// kInvalidArgument unless the queues among them are named apart, appended to and of a size.
absl::Status Validate(const std::vector<TablePolicy>& queues);

const char* NameOf(InsertPolicy policy);
const char* NameOf(EvictPolicy policy);
const char* NameOf(DrawPolicy policy);

}  // namespace oxbow::replay
