// SPDX-License-Identifier: Apache-2.0
// run.stop_if: conditions over the numbers of metrics.jsonl that end a run before its last step.
//
// A rule looks at the values of its metric in the order of their steps, and only once more than
// `after_step` steps are done:
//
//   below: 0.1       the newest value is below 0.1
//   above: 10        the newest value is above 10
//   no_rise_for: 5   none of the newest five values is above the best of those before them
#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

using StopRuleList = google::protobuf::RepeatedPtrField<v1::StopRule>;

struct MetricValue {
  uint64_t step = 0;  // Committed learner steps.
  double value = 0;
};

// The values of the metrics that rules name, in the order of their steps.
using MetricSeries = std::map<std::string, std::vector<MetricValue>>;

// Adds what `numbers` has of the metrics that `rules` name.
void AddValues(const StopRuleList& rules, uint64_t step,
               const std::map<std::string, double>& numbers, MetricSeries& series);

// Why the run ends now, in one line; nothing if it goes on. The first rule that is met counts:
// "eval/reward_mean is 0.08 at step 60, below 0.1 (run.stop_if[0])".
std::optional<std::string> StopReason(const StopRuleList& rules, const MetricSeries& series);

// Keys of metrics.jsonl that a rule of this config may name: those of evaluations only if it has
// any.
std::vector<std::string> MetricsForRules(const v1::RunConfig& config);

// The fault of a metric's name, with the nearest name that is right; "" if there is none.
std::string MetricProblem(const std::string& name, const std::vector<std::string>& known);

}  // namespace oxbow::config
