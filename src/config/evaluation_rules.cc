// SPDX-License-Identifier: Apache-2.0
#include "config/evaluation_rules.h"

namespace oxbow::config {

std::vector<std::string> KeysThatAwaitEvaluations(const v1::RunConfig& config) {
  std::vector<std::string> keys;
  if (!config.checkpoint().best().empty()) keys.push_back("checkpoint.best");
  if (config.run().stop_if_size() > 0) keys.push_back("run.stop_if");
  if (config.publish().reward_floor() > 0) keys.push_back("publish.reward_floor");
  return keys;
}

}  // namespace oxbow::config
