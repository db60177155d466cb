// SPDX-License-Identifier: Apache-2.0
#include "config/rules.h"

namespace oxbow::config {

std::vector<std::string> KeysThatAwaitEvaluations(const v1::RunConfig& config) {
  std::vector<std::string> keys;
  if (!config.checkpoint().best().empty()) keys.push_back("checkpoint.best");
  if (config.run().stop_if_size() > 0) keys.push_back("run.stop_if");
  if (config.publish().reward_floor() > 0) keys.push_back("publish.reward_floor");
  return keys;
}

void DrawerRules(const v1::RunConfig& config, Findings& findings) {
  if (config.eval().drawn_by() != v1::DRAWER_WORKERS) return;
  if (config.eval().every() == 0) {
    findings.Warn("eval.drawn_by", "has no effect while eval.every is 0: nothing is evaluated");
    return;
  }
  const v1::ModelConfig& model = config.model();
  if (model.trained() == v1::TRAINED_PART_LORA && model.lora().merge_for_rollouts()) {
    findings.Warn("eval.drawn_by",
                  "workers draw with the merged adapter of model.lora.merge_for_rollouts: the "
                  "numbers of evaluations differ from those that the learner draws by rounding");
  }
}

}  // namespace oxbow::config
