// SPDX-License-Identifier: Apache-2.0
// Strong types for the integers of the system, so that two of them cannot be swapped, and the names
// of workers.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string_view>

#include "absl/status/status.h"

namespace oxbow {

template <typename Tag>
struct StrongInt {
  uint64_t value = 0;

  constexpr StrongInt() = default;
  constexpr explicit StrongInt(uint64_t v) : value(v) {}
  constexpr auto operator<=>(const StrongInt&) const = default;
  StrongInt& operator++() {
    ++value;
    return *this;
  }
  template <typename H>
  friend H AbslHashValue(H h, const StrongInt& id) {
    return H::combine(std::move(h), id.value);
  }
};

template <typename Tag>
std::ostream& operator<<(std::ostream& out, StrongInt<Tag> id) {
  return out << id.value;
}

using PromptId = StrongInt<struct PromptIdTag>;            // Hash of text and metadata.
using GroupId = StrongInt<struct GroupIdTag>;              // Position in the run's order of groups.
using EntryId = StrongInt<struct EntryIdTag>;              // A replay entry; globally unique.
using PolicyVersion = StrongInt<struct PolicyVersionTag>;  // Optimiser updates in the weights.
using LearnerStep =
    StrongInt<struct LearnerStepTag>;          // Committed steps; one step has several updates.
using Epoch = StrongInt<struct EpochTag>;      // Learner starts; fences older ones.
using LeaseId = StrongInt<struct LeaseIdTag>;  // One attempt at a group.

// Checks the name of a worker, which comes from the wire and goes into logs, tables and metrics. OK
// for 1 to 128 letters, digits and characters of "-_.:@/". kInvalidArgument otherwise.
absl::Status CheckWorkerId(std::string_view id);

// The common part of the names of one worker's processes: "gpu-a" for "gpu-a", "gpu-a.1" and
// "gpu-a.12". A name whose rest would have no letter stays as it is: 10.0.0.7 is an address.
std::string_view BaseWorkerId(std::string_view id);

}  // namespace oxbow
