// What the rules know of a replay entry: everything that decides whether it stays or is drawn.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace oxbow::replay {

struct EntryFacts {
  EntryId id;
  PromptId prompt;
  LearnerStep birth;      // Step whose weights made it.
  double reward = 0;      // Raw; never changed by age.
  uint64_t uses = 0;      // Committed steps that trained on it.
  LearnerStep last_used;  // Step of the last use; meaningless while uses is 0.

  bool operator==(const EntryFacts&) const = default;
};

}  // namespace oxbow::replay
