// SPDX-License-Identifier: Apache-2.0
// An evaluation: its values, and what they sum up to. A row for each reward and group, with
// intervals by prompt, for one model or for two side by side.
//
// With two models a row is over the prompts that both have a value for, and its difference is
// paired: other minus first, prompt by prompt.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/image8.h"
#include "cli/evaluate/evaluation_set.h"
#include "core/reward/prompt_bootstrap.h"
#include "core/reward/scorer.h"

namespace oxbow::cli {

// The values that rewards give the pictures of a set's prompts.
//
// A picture without a score is counted and never a number: the value of its prompt is the mean over
// the other pictures, and a prompt without any score has no value.
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

struct SetRow {
  std::string reward;
  std::string identity;
  std::string group;  // "overall" for the whole set.
  size_t prompts = 0;
  reward::MeanInterval value;
  std::optional<double> tenths;  // Standard deviation of the means of ten parts of a group.
  std::optional<reward::MeanInterval> other;
  std::optional<reward::MeanInterval> difference;
};

struct SetReport {
  v1::EvaluationSet set;
  size_t prompts = 0;
  uint64_t seed = 0;                   // For the bootstrap.
  std::vector<SetValues> evaluations;  // One, or two over the same prompts and rewards.
  std::vector<SetRow> rows;            // By reward, then group; what has no value has no row.
};

// Requires one evaluation or two, of the set's prompts.
SetReport Report(const v1::EvaluationSet& set, const std::vector<SetPrompt>& prompts,
                 std::vector<SetValues> evaluations, uint64_t seed);

std::string ReportText(const SetReport& report);
std::string ReportJson(const SetReport& report);
std::string ReportHtml(const SetReport& report);

}  // namespace oxbow::cli
