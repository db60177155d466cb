// SPDX-License-Identifier: Apache-2.0
#include "core/replay/table_policy.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace oxbow::replay {
namespace {

constexpr size_t kNameMax = 64;  // Fits the length byte of a stored name.

Decision Challenge(const Situation& situation, const Occupant& occupant) {
  const bool better = situation.candidate_reward > occupant.priority;
  return better ? Decision{Verdict::kReplace, occupant.id} : Decision{};
}

}  // namespace

TablePolicy BestTable(uint64_t capacity, DrawPolicy draw, const DrawLimits& limits) {
  return {.name = kBestTable,
          .insert = InsertPolicy::kBetter,
          .evict = EvictPolicy::kLowest,
          .draw = draw,
          .limits = limits,
          .holds_draws = true,
          .capacity = capacity};
}

std::vector<TablePolicy> AdaptationTables(uint64_t prompts, uint64_t groups, uint64_t steps) {
  std::vector<TablePolicy> tables;
  if (prompts > 0) {
    tables.push_back({.name = kHardPrompts,
                      .insert = InsertPolicy::kAppendPerPrompt,
                      .evict = EvictPolicy::kOldest,
                      .draw = DrawPolicy::kOldest,
                      .capacity = prompts});
  }
  if (groups > 0 && steps > 0) {
    tables.push_back({.name = kRecentGroups,
                      .insert = InsertPolicy::kAppend,
                      .evict = EvictPolicy::kOldest,
                      .draw = DrawPolicy::kUniform,
                      .capacity = groups,
                      .age_max = steps});
  }
  return tables;
}

absl::Status Validate(const std::vector<TablePolicy>& tables) {
  if (tables.empty() || tables[0].name != kBestTable || tables[0].insert != InsertPolicy::kBetter) {
    return absl::InvalidArgumentError("the first table must be best");
  }
  if (tables[0].capacity == 0) {
    return absl::InvalidArgumentError("replay.capacity must be at least 1: 0");
  }
  std::set<std::string> names = {kBestTable};
  for (size_t i = 1; i < tables.size(); ++i) {
    const TablePolicy& table = tables[i];
    if (table.name.empty() || table.name.size() > kNameMax || !names.insert(table.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("a table needs a name of its own of at most ",
                                                     kNameMax, " bytes: '", table.name, "'"));
    }
    if (table.insert == InsertPolicy::kBetter || table.evict != EvictPolicy::kOldest ||
        table.holds_draws) {
      return absl::InvalidArgumentError(
          absl::StrCat("a table beside best is a queue: '", table.name, "'"));
    }
    if (table.capacity == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a table needs a capacity of at least 1: '", table.name, "'"));
    }
  }
  return absl::OkStatus();
}

const char* NameOf(InsertPolicy policy) {
  switch (policy) {
    case InsertPolicy::kBetter:
      return "better";
    case InsertPolicy::kAppend:
      return "append";
    case InsertPolicy::kAppendPerPrompt:
      break;
  }
  return "append_per_prompt";
}

const char* NameOf(EvictPolicy policy) {
  return policy == EvictPolicy::kLowest ? "lowest" : "oldest";
}

const char* NameOf(DrawPolicy policy) {
  switch (policy) {
    case DrawPolicy::kUniform:
      return "uniform";
    case DrawPolicy::kOldest:
      return "oldest";
    case DrawPolicy::kNewest:
      return "newest";
    case DrawPolicy::kLearnable:
      return "learnable";
    case DrawPolicy::kBest:
      return "best";
    case DrawPolicy::kVaried:
      return "varied";
    case DrawPolicy::kPriority:
      break;
  }
  return "priority";
}

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
