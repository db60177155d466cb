// SPDX-License-Identifier: Apache-2.0
// An evaluation summed up: a row for each reward and group, with intervals by prompt, for one model
// or for two side by side.
//
// With two models a row is over the prompts that both have a value for, and its difference is
// paired: other minus first, prompt by prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/evaluate/evaluation_set.h"
#include "cli/evaluate/set_values.h"
#include "core/reward/prompt_bootstrap.h"

namespace oxbow::cli {

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
