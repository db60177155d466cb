// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/run_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "cli/plan/resource_plan.h"
#include "config/chosen_method.h"
#include "config/rules.h"
#include "config/validate.h"
#include "core/flow/compression.h"
#include "core/flow/sampler.h"
#include "core/flow/split_tree.h"
#include "core/flow/window.h"
#include "run/embedded_guidance.h"
#include "run/group_bytes.h"
#include "run/kept_steps.h"
#include "run/rewards.h"
#include "run/sampling_spec.h"
#include "run/trainer_options.h"

namespace oxbow::cli {
namespace {

// "5: 0-4", "2: 2 of 0-4, neighbours, drawn every 1 learner steps"
std::string TrainedText(const v1::RunConfig& config) {
  const v1::SamplingConfig& sampling = config.sampling();
  if (config::ChosenMethod(config.method()).trains_final_latents()) {
    return absl::StrCat("final images, at ", run::TrainedSteps(config), " times each");
  }
  const absl::StatusOr<flow::WindowPlan> window = run::WindowFromConfig(sampling);
  if (!window.ok()) return "no";
  return absl::StrCat(flow::WindowAt(*window, /*run_seed=*/0, /*step=*/0).size(), " (",
                      flow::Describe(*window), ") of ", sampling.steps(), " sampling steps");
}

// Steps that a path through trees takes. Their stochastic steps do not move.
int StepsOfTrees(const v1::SamplingConfig& sampling) {
  const int steps = static_cast<int>(sampling.steps());
  const absl::StatusOr<flow::WindowPlan> window = run::WindowFromConfig(sampling);
  if (!window.ok()) return steps;
  return flow::StepsTaken(sampling.compression().share(),
                          flow::StepFlags(flow::WindowAt(*window, 0, 0), steps), 0);
}

// "2 of 4 images in a group; 110 of 160 rows of the network are sampled", where groups are trees.
std::string TreesText(const v1::RunConfig& config) {
  const v1::SamplingConfig& sampling = config.sampling();
  if (sampling.split_steps_size() == 0) return "";
  const flow::SplitTree tree = run::SplitTreeOf(sampling);
  const uint32_t size = config.batch().group_size();
  return absl::StrFormat(
      "%-22s %d of %d images in a group; %d of %d rows of the network are sampled\n", "trees",
      size / tree.Leaves(), tree.Leaves(), flow::NodesOfGroup(tree, size, StepsOfTrees(sampling)),
      uint64_t{size} * sampling.steps());
}

// "11 to 25 of 25 steps", where steps behind the window are compressed.
std::string CompressionText(const v1::RunConfig& config) {
  const double share = config.sampling().compression().share();
  const absl::StatusOr<flow::WindowPlan> window = run::WindowFromConfig(config.sampling());
  if (share == 1 || !window.ok()) return "";
  const int steps = static_cast<int>(config.sampling().steps());
  int least = steps, most = 0;
  for (uint64_t step = 0; step < std::max<uint64_t>(config.run().steps(), 1); ++step) {
    const std::vector<int> stochastic = flow::WindowAt(*window, config.run().seed(), step);
    const int taken = flow::StepsTaken(share, flow::StepFlags(stochastic, steps), 0);
    least = std::min(least, taken);
    most = std::max(most, taken);
  }
  const std::string range = least == most ? absl::StrCat(least) : absl::StrCat(least, " to ", most);
  return absl::StrFormat("%-22s %s of %d steps, by sampling.compression\n", "a sample takes", range,
                         steps);
}

}  // namespace

std::string BatchText(const v1::RunConfig& config) {
  const v1::BatchConfig& batch = config.batch();
  const uint64_t images = uint64_t{batch.groups()} * batch.group_size();
  return absl::StrCat(
      absl::StrFormat("%-22s %d x %d = %d images\n", "a learner step", batch.groups(),
                      batch.group_size(), images),
      absl::StrFormat("%-22s %d of %d groups\n", "with a replayed head",
                      config::ReplayedGroups(config), batch.groups()),
      absl::StrFormat("%-22s %d of %d images\n", "an optimiser update", images / batch.updates(),
                      images),
      absl::StrFormat("%-22s %s\n", "trained", TrainedText(config)), CompressionText(config),
      TreesText(config),
      absl::StrFormat("%-22s %d steps, %d updates, %d images\n", "the run", config.run().steps(),
                      config.run().steps() * config::UpdatesPerStep(config),
                      config.run().steps() * images));
}

std::string PictureText(const run::ModelFacts& facts) {
  const auto line = [&](const char* what, const std::vector<int64_t>& shape) {
    const model::PictureSize size = model::DecodedSize(facts.factors, shape);
    const std::string pixels = absl::StrFormat("%d x %d pixels", size.height, size.width);
    return absl::StrFormat(
        "%-22s %s, latents [%s]\n", what,
        size.frames == 0 ? pixels : absl::StrFormat("%d frames of %s", size.frames, pixels),
        absl::StrJoin(shape, ", "));
  };
  const bool picture = model::DecodedSize(facts.factors, facts.latent_shape).frames == 0;
  std::string text = line(picture ? "an image" : "a video", facts.latent_shape);
  if (!facts.evaluated_shape.empty() && facts.evaluated_shape != facts.latent_shape) {
    absl::StrAppend(&text, line("in an evaluation", facts.evaluated_shape));
  }
  return text;
}

std::string StepTable(const v1::RunConfig& config, const flow::SamplingSpec& sampling) {
  if (config::ChosenMethod(config.method()).trains_final_latents()) {
    return config::KeepsSuccesses(config) ? "what is replayed is a whole image\n" : "";
  }
  const std::vector<double> kc = flow::SensitivityTable(sampling);
  const int kept = run::KeptStepsOf(config, sampling);
  std::string text = absl::StrFormat("%4s  %6s  %9s  %s\n", "step", "sigma", "kc", "");
  for (int i = 0; i < sampling.steps(); ++i) {
    const auto at = static_cast<size_t>(i);
    const std::string value = sampling.sde[at] ? absl::StrFormat("%9.4g", kc[at]) : "      ode";
    absl::StrAppend(&text, absl::StrFormat("%4d  %6.4f  %s  %s\n", i, sampling.sigmas[at], value,
                                           i < kept ? "kept" : ""));
  }
  const bool chosen = config.method().kept_steps() > 0;
  absl::StrAppend(
      &text, "a replayed or older sample trains its first ", kept, " steps (i_off): ",
      chosen ? std::string("method.kept_steps says so")
             : absl::StrCat("those with kc below ", config.method().kept_kc_max(),
                            " (method.kept_kc_max); kc is how fast a step turns off-policy"),
      "\n", "the clip's centre is ",
      run::RecomputesOldLogProbs(config) ? "recomputed by the learner" : "the worker's log-prob",
      " (method.old_log_prob)\n");
  return text;
}

// Nothing where the network takes no scale.
std::string GuidanceText(const v1::RunConfig& config, double scale) {
  if (scale == 0) return "";
  const bool set = config.sampling().embedded_guidance() > 0;
  return absl::StrFormat("%-22s %g, %s\n", "guidance of the network", scale,
                         set ? "by sampling.embedded_guidance" : "its own");
}

// Nothing where the prompt alone is followed.
std::string SecondRowText(const v1::RunConfig& config, double scale) {
  if (scale == 1) return "";
  return absl::StrFormat(
      "%-22s %g of the pipeline, v_negative + %g (v_prompt - v_negative): two rows "
      "a sample\n",
      "guidance", config.sampling().guidance(), scale);
}

// Whether training waits for evaluations.
std::string EvaluationText(const v1::RunConfig& config) {
  if (config.eval().every() == 0) return "";
  const std::vector<std::string> keys = config::KeysThatAwaitEvaluations(config);
  return absl::StrFormat(
      "%-22s %s\n", "evaluations",
      keys.empty()
          ? "training goes on meanwhile, for one step at most and no checkpoint that is due"
          : absl::StrCat("training waits for them, by ", absl::StrJoin(keys, ", ")));
}

absl::StatusOr<std::string> RunPlanText(const v1::RunConfig& config, const run::ModelFacts& facts) {
  v1::SamplingConfig resolved = config.sampling();
  run::ResolveSampling(facts.schedule, resolved);
  double guidance = 0;
  if (facts.architecture != nullptr) {
    OXBOW_ASSIGN_OR_RETURN(guidance, run::EmbeddedGuidance(*facts.architecture, config.sampling()));
  }
  resolved.set_embedded_guidance(guidance);
  resolved.set_guidance(facts.guidance);
  OXBOW_ASSIGN_OR_RETURN(const flow::SamplingSpec sampling, run::SamplingSpecFromConfig(resolved));
  return absl::StrCat(PictureText(facts), BatchText(config), EvaluationText(config),
                      SecondRowText(config, facts.guidance), GuidanceText(config, guidance), "\n",
                      StepTable(config, sampling), "\n", MemoryText(config, facts));
}

}  // namespace oxbow::cli
