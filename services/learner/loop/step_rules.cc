// SPDX-License-Identifier: Apache-2.0
#include "services/learner/loop/step_rules.h"

#include <memory>
#include <utility>

#include "config/chosen_method.h"
#include "config/validate.h"
#include "run/rewards.h"
#include "run/trainer_options.h"
#include "services/learner/checkpoint/checkpoint_manifest.h"
#include "services/learner/loop/step_adaptation.h"
#include "services/learner/plan/prompt_choice.h"
#include "services/learner/replay/stored_successes.h"

namespace oxbow::learner {
namespace {

OfferRules OffersOf(const RunSetup& setup) {
  return {.run_seed = setup.config.run().seed(),
          .kept_steps = run::KeptStepsOf(setup.config, setup.sampling),
          .images = config::ChosenMethod(setup.config.method()).trains_final_latents(),
          .sigmas = setup.sampling.sigmas};
}

ReuseOptions ReuseOf(const RunSetup& setup, ReplayLink* buffer) {
  const v1::RunConfig& config = setup.config;
  return {.buffer = buffer,
          .heads_max = config::ReplayedGroups(config),
          .by_need = config.replay().by_need(),
          .staleness_max = config.off_policy().staleness_max(),
          .stored_tail = config.sampling().tail() == v1::TAIL_KIND_STORED,
          .added = config.replay().added(),
          .limits = {.uses_max = config.replay().max_uses(), .age_max = config.replay().max_age()},
          .until = config.replay().reincarnate_after(),
          .full_reward = run::WholeOf(config.reward()),
          .offers = config::KeepsSuccesses(config) ? std::optional(OffersOf(setup)) : std::nullopt,
          .failures_max = config.replay().failures_max()};
}

rl::ThresholdRule RuleOf(v1::ThresholdRule rule) {
  switch (rule) {
    case v1::THRESHOLD_RULE_EASY_TO_HARD:
      return rl::ThresholdRule::kEasyToHard;
    case v1::THRESHOLD_RULE_LITERAL:
      return rl::ThresholdRule::kLiteral;
    default:
      return rl::ThresholdRule::kFixed;
  }
}

}  // namespace

rl::BatchAdaptation AdaptationOf(const v1::AdaptationConfig& config) {
  return {.hard_max = config.hard_max(),
          .rule = RuleOf(config.thresholds()),
          .reuse_min = config.reuse_min(),
          .reuse_max = config.reuse_max(),
          .again_every = config.again_every(),
          .again_max = config.again_max(),
          .recent_steps = config.recent_steps()};
}

StepRules RulesOf(const RunSetup& setup, const RunState& from, PromptOrder& prompts,
                  ConditioningCache& conditioning, ReplayLink* buffer) {
  const v1::RunConfig& config = setup.config;
  const ReuseOptions reuse = ReuseOf(setup, buffer);
  StepRules rules;
  auto stored = std::make_unique<StoredSuccesses>(reuse, from.reuse);
  const StoredSuccesses& known = *stored;
  rules.push_back(std::move(stored));
  if (config.replay().late_binding()) rules.push_back(std::make_unique<LateBinding>(reuse));
  if (reuse.added > 0) rules.push_back(std::make_unique<AddedSuccesses>(reuse, known));
  if (config.adaptation().enabled()) {
    rules.push_back(std::make_unique<StepAdaptation>(
        StepAdaptation::Options{.rules = AdaptationOf(config.adaptation()),
                                .group_size = static_cast<int>(config.batch().group_size()),
                                .groups = config.batch().groups(),
                                .ranks = static_cast<int>(config.learner().ranks()),
                                .run_seed = config.run().seed(),
                                .offers = OffersOf(setup)},
        buffer, conditioning));
  }
  rules.push_back(std::make_unique<PromptChoice>(
      PromptChoice::Options{.learnable = config.prompts().choice() == v1::PROMPT_CHOICE_LEARNABLE,
                            .run_seed = config.run().seed(),
                            .staleness_max = config.off_policy().staleness_max(),
                            .full_reward = run::WholeOf(config.reward())},
      prompts, from.known));
  rules.push_back(
      std::make_unique<PromptProgressRule>(run::WholeOf(config.reward()), from.progress));
  return rules;
}

}  // namespace oxbow::learner
