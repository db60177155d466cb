// SPDX-License-Identifier: Apache-2.0
// The values that rewards give the pictures of a set's prompts.
//
// A picture without a score is counted and never a number: the value of its prompt is the mean over
// the other pictures, and a prompt without any score has no value.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/image8.h"
#include "cli/evaluate/evaluation_set.h"
#include "core/reward/scorer.h"

namespace oxbow::cli {

struct RewardValues {
  std::string name;
  std::string identity;
  std::vector<std::optional<double>> by_prompt;  // Mean over the pictures of each prompt.
  size_t failed = 0;                             // Pictures without a score.
  std::string failure = {};                      // Why the first of them has none.
};

struct SetValues {
  std::string source;  // The maker of the pictures, as reports name it.
  std::vector<RewardValues> rewards;

  size_t failed() const;
};

// The pictures or videos of one prompt: the frames of each.
using Pictures = std::vector<std::vector<Image8>>;

// All of the prompts first .. last - 1: one list for each.
using PicturesOf = std::function<absl::StatusOr<std::vector<Pictures>>(
    const std::vector<SetPrompt>& prompts, size_t first, size_t last)>;

// Goes through the prompts, `chunk` at a time, so that any number of pictures fits into memory.
// Pictures of a prompt are one group. Returns the first error of `pictures`.
absl::StatusOr<SetValues> Evaluate(const std::vector<SetPrompt>& prompts, size_t chunk,
                                   const std::string& source, const PicturesOf& pictures,
                                   const std::vector<std::unique_ptr<reward::Scorer>>& scorers);

}  // namespace oxbow::cli
