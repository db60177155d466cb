// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "config/rules.h"
#include "metrics/step_metrics.h"

namespace oxbow::config {

std::vector<std::string> KeysThatAwaitEvaluations(const v1::RunConfig& config) {
  std::vector<std::string> keys;
  const auto& rules = config.run().stop_if();
  if (std::any_of(rules.begin(), rules.end(),
                  [](const v1::StopRule& rule) { return metric::IsOfEvaluation(rule.metric()); })) {
    keys.emplace_back("run.stop_if");
  }
  if (!config.checkpoint().best().empty()) keys.emplace_back("checkpoint.best");
  if (config.publish().reward_floor() > 0) keys.emplace_back("publish.reward_floor");
  return keys;
}

}  // namespace oxbow::config
