// SPDX-License-Identifier: Apache-2.0
// Strong types for the integers of the system, so that two of them cannot be swapped.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>

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

}  // namespace oxbow
