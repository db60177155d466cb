// SPDX-License-Identifier: Apache-2.0
#include "bench/single_process_loop.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "config/memory_parts.h"
#include "core/model/image_sampler.h"
#include "core/model/policy.h"
#include "core/parallel/ranks.h"
#include "core/rl/trainer.h"
#include "run/loaded_model.h"
#include "run/prompt_files.h"
#include "run/rewards.h"
#include "run/sampling_spec.h"
#include "run/trainer_options.h"
#include "services/learner/plan/conditioning_cache.h"
#include "services/learner/plan/prompt_order.h"
#include "services/learner/plan/step_plan.h"
#include "services/reward/scorer_table.h"
#include "services/rollout/group_delivery.h"
#include "services/rollout/group_sampler.h"

namespace oxbow::bench {

struct SingleProcessLoop::Impl {
  v1::RunConfig config;
  rollout::RunSpec spec;
  flow::WindowPlan window;
  std::unique_ptr<model::Policy> policy;
  std::unique_ptr<model::ImageDecoder> decoder;
  std::unique_ptr<learner::ConditioningCache> conditioning;
  std::unique_ptr<learner::PromptOrder> prompts;
  std::vector<std::unique_ptr<reward::Scorer>> scorers;
  std::unique_ptr<parallel::Ranks> ranks = parallel::MakeSingleRank();
  std::unique_ptr<rl::Trainer> trainer;
  LearnerStep step;

  std::vector<bool> Window() const {
    return flow::StepFlags(flow::WindowAt(window, spec.run_seed, step.value),
                           spec.sampling.steps());
  }

  absl::Status Score(const v1::Prompt& prompt, rollout::SampledGroup& group) const {
    std::vector<absl::StatusOr<reward::Scores>> scores;
    for (const std::vector<Image8>& frames : group.media) {
      reward::Scores named;
      for (const auto& scorer : scorers) {
        OXBOW_ASSIGN_OR_RETURN(
            const reward::Score score,
            reward::ScoreOne(*scorer, prompt.text(), prompt.metadata_json(), frames.front()));
        named[scorer->facts().name] = score.value;
      }
      scores.emplace_back(std::move(named));
    }
    return rollout::ApplyScores(config.reward(), /*drops=*/false, scores, group.trajectories)
        .status();
  }
};

SingleProcessLoop::SingleProcessLoop(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SingleProcessLoop::~SingleProcessLoop() = default;

absl::StatusOr<std::unique_ptr<SingleProcessLoop>> SingleProcessLoop::Create(
    const v1::RunConfig& config) {
  if (config.replay().fraction() != 0 || config.off_policy().publish_every() != 1 ||
      config.off_policy().staleness_max() != 0 ||
      config.prompts().choice() == v1::PROMPT_CHOICE_LEARNABLE ||
      config.model().trained() != v1::TRAINED_PART_FULL || config.sampling().guidance() != 1 ||
      config.model().compute_dtype() != v1::STORAGE_D_TYPE_F32 ||
      config::RolloutType(config.model()) != v1::STORAGE_D_TYPE_F32 ||
      config.model().device() != "cpu") {
    return absl::InvalidArgumentError(
        "one process does full fine-tunes on-policy in f32 on a CPU, without replay, chosen "
        "prompts and guidance; set replay.fraction=0 and prompts.choice=shuffled");
  }
  auto impl = std::make_unique<Impl>();
  impl->config = config;
  OXBOW_ASSIGN_OR_RETURN(run::LoadedModel loaded,
                         run::LoadModel(config.model(), config.prompts(), config.sampling()));
  v1::SamplingConfig& sampling = *impl->config.mutable_sampling();
  run::ResolveSampling(loaded.schedule, sampling);
  sampling.set_embedded_guidance(loaded.embedded_guidance);
  OXBOW_ASSIGN_OR_RETURN(impl->spec.sampling, run::SamplingSpecFromConfig(sampling));
  OXBOW_ASSIGN_OR_RETURN(impl->spec.storage, run::StorageFromConfig(sampling));
  impl->spec.sent = run::SentLatentsOf(config);
  impl->spec.run_seed = config.run().seed();
  impl->spec.latent_shape = loaded.latent_shape;
  OXBOW_ASSIGN_OR_RETURN(impl->window, run::WindowFromConfig(impl->config.sampling()));
  OXBOW_ASSIGN_OR_RETURN(
      impl->policy,
      model::Policy::Create({.architecture = loaded.architecture,
                             .read_base = std::move(loaded.read_transformer),
                             .with_ema = config.ema().enabled(),
                             .old = run::OldPolicyOf(config.method()),
                             .embedded_guidance = loaded.embedded_guidance,
                             .whole_timesteps = impl->spec.sampling.whole_timesteps}));
  impl->decoder = std::move(loaded.decoder);
  impl->conditioning = std::make_unique<learner::ConditioningCache>(std::move(loaded.prompts));
  OXBOW_ASSIGN_OR_RETURN(std::vector<v1::Prompt> prompts,
                         run::ReadPrompts(config.prompts().train(), run::PromptSplit::kTrain));
  OXBOW_RETURN_IF_ERROR(impl->conditioning->Warm(prompts));
  impl->prompts = std::make_unique<learner::PromptOrder>(std::move(prompts), config.run().seed());
  for (const std::string& name : run::RewardNames(config.reward())) {
    OXBOW_ASSIGN_OR_RETURN(impl->scorers.emplace_back(), reward::MakeScorer(name));
  }
  impl->trainer = std::make_unique<rl::Trainer>(
      run::MakeTrainerOptions(impl->config, impl->spec.sampling, impl->window), *impl->policy,
      *impl->ranks);
  return std::unique_ptr<SingleProcessLoop>(new SingleProcessLoop(std::move(impl)));
}

absl::StatusOr<std::map<std::string, double>> SingleProcessLoop::Step() {
  Impl& loop = *impl_;
  const learner::StepPlan plan = learner::PlanStep(
      {.step = loop.step, .groups = loop.config.batch().groups(), .sde = loop.Window()},
      *loop.prompts);
  std::vector<rollout::GroupTask> tasks;
  for (const learner::PlannedGroup& planned : plan.groups) {
    OXBOW_ASSIGN_OR_RETURN(const learner::ConditioningCache::Entry* entry,
                           loop.conditioning->Get(planned.prompt));
    tasks.push_back(
        {planned.id, loop.config.batch().group_size(), entry->tensors, std::nullopt, planned.sde});
  }
  std::vector<rollout::SampledGroup> sampled = rollout::SampleGroups(
      loop.spec,
      [&] {
        return rollout::VersionedNetwork{loop.policy->sampler(), loop.trainer->version()};
      },
      *loop.decoder, tasks);
  std::vector<rl::Group> groups;
  for (size_t i = 0; i < sampled.size(); ++i) {
    const v1::Prompt& prompt = plan.groups[i].prompt;
    rollout::CompareSamples(loop.spec.duplicate_radius, sampled[i]);
    OXBOW_RETURN_IF_ERROR(loop.Score(prompt, sampled[i]));
    // A copy made with gradients enabled: tensors made during sampling cannot be saved for a
    // backward pass.
    for (rl::Trajectory& sample : sampled[i].trajectories) sample.latents = sample.latents.clone();
    groups.push_back({.id = plan.groups[i].id,
                      .prompt_id = PromptId(prompt.id()),
                      .prompt_text = prompt.text(),
                      .prompt_metadata_json = prompt.metadata_json(),
                      .conditioning = tasks[i].conditioning,
                      .trajectories = std::move(sampled[i].trajectories)});
  }
  OXBOW_ASSIGN_OR_RETURN(rl::StepResult result, loop.trainer->Step(loop.step, groups));
  ++loop.step;
  return std::move(result.metrics);
}

absl::StatusOr<std::vector<std::vector<Image8>>> SingleProcessLoop::DrawHeldOut(size_t count) {
  const Impl& loop = *impl_;
  OXBOW_ASSIGN_OR_RETURN(
      const std::vector<v1::Prompt> prompts,
      run::ReadPrompts(loop.config.prompts().eval(), run::PromptSplit::kHeldOut));
  std::vector<model::ImageRequest> requests;
  for (size_t i = 0; i < count; ++i) {
    OXBOW_ASSIGN_OR_RETURN(const learner::ConditioningCache::Entry* entry,
                           loop.conditioning->Get(prompts.at(i)));
    requests.push_back(
        {.conditioning = entry->tensors,
         .key = {.run_seed = loop.spec.run_seed, .group = (uint64_t{1} << 63) + i, .sample = 0}});
  }
  OXBOW_ASSIGN_OR_RETURN(const flow::SamplingSpec spec, run::EvaluationSpecFromConfig(loop.config));
  const bool average = loop.config.ema().enabled() && loop.config.eval().use_ema();
  return model::SampleFrames(average ? loop.policy->ema() : loop.policy->current(), *loop.decoder,
                             model::OdeSpec(spec.sigmas, spec.solver), requests,
                             loop.spec.latent_shape, static_cast<int64_t>(count));
}

}  // namespace oxbow::bench
