// SPDX-License-Identifier: Apache-2.0
// How far the prompts of a run have come: from the level of their first group to that of their
// latest one, as BAPO shows it (docs/methods/bapo.md; its figures 7, 13 and 15).
//
// The level of a group is one of six, by the mean m of its samples' shares of the full reward, each
// limited to [0, 1]:
//
//   level      0       1          2            3            4          5
//   m          0       (0, 1/4]   (1/4, 1/2]   (1/2, 3/4]   (3/4, 1)   1
//   right of 8 0       1, 2       3, 4         5, 6         7          8
//
// Pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "base/ids.h"

namespace oxbow::rl {

inline constexpr size_t kPromptLevels = 6;

// The level of a group with these rewards, at least one. `full` > 0 is the reward of a sample that
// is right in full.
size_t LevelOf(std::span<const double> rewards, double full);

struct PromptLevels {
  size_t first = 0;
  size_t latest = 0;
  bool again = false;  // Two groups of the prompt were seen, or more.

  bool operator==(const PromptLevels&) const = default;
};

class PromptProgress {
 public:
  using Prompts = std::map<PromptId, PromptLevels>;
  using Migration = std::array<std::array<uint64_t, kPromptLevels>, kPromptLevels>;

  PromptProgress() = default;
  explicit PromptProgress(Prompts prompts) : prompts_(std::move(prompts)) {}  // From a checkpoint.

  // A group of `prompt` has this level, below kPromptLevels.
  void See(PromptId prompt, size_t level);

  // Prompts by their first level (row) and their latest (column). They sum to the prompts seen.
  Migration Counts() const;

  // The share with a success by now, of the prompts that had none at first (level 0) and were seen
  // again. Nothing where there are none.
  std::optional<double> SolvedShare() const;

  const Prompts& prompts() const { return prompts_; }
  bool operator==(const PromptProgress&) const = default;

 private:
  Prompts prompts_;
};

}  // namespace oxbow::rl
