// SPDX-License-Identifier: Apache-2.0
#include "services/learner/record/hyper_parameters.h"

#include "config/yaml_message.h"

namespace oxbow::learner {

std::map<std::string, io::HyperParameter> HyperParametersOf(const v1::RunConfig& config) {
  std::map<std::string, io::HyperParameter> values;
  const auto text = [&](const std::string& section, const google::protobuf::Message& message,
                        const std::string& field) {
    const auto* const found = message.GetDescriptor()->FindFieldByName(field);
    values[section + "." + field] = config::FieldText(message, *found);
  };
  const auto number = [&](const std::string& key, auto value) {
    values[key] = static_cast<double>(value);
  };
  text("model", config.model(), "trained");
  text("sampling", config.sampling(), "dynamics");
  text("method", config.method(), "name");
  text("method", config.method(), "correction");
  text("reward", config.reward(), "terms");
  number("run.seed", config.run().seed());
  number("sampling.steps", config.sampling().steps());
  number("sampling.eta", config.sampling().eta());
  number("sampling.sde_count", config.sampling().sde_count());
  number("sampling.guidance", config.sampling().guidance());
  number("batch.groups", config.batch().groups());
  number("batch.group_size", config.batch().group_size());
  number("batch.updates", config.batch().updates());
  number("method.clip_range", config.method().clip_range());
  number("method.kl_weight", config.method().kl_weight());
  number("method.anchor.weight", config.method().anchor().weight());
  number("method.diversity.weight", config.method().diversity().weight());
  number("replay.fraction", config.replay().fraction());
  number("off_policy.staleness_max", config.off_policy().staleness_max());
  number("optimizer.learning_rate", config.optimizer().learning_rate());
  number("model.lora.rank", config.model().lora().rank());
  return values;
}

}  // namespace oxbow::learner
