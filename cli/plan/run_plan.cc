#include "cli/plan/run_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "cli/plan/bytes_text.h"
#include "config/chosen_method.h"
#include "config/validate.h"
#include "core/flow/sampler.h"
#include "core/flow/window.h"
#include "run/embedded_guidance.h"
#include "run/group_bytes.h"
#include "run/kept_steps.h"
#include "run/rewards.h"
#include "run/sampling_spec.h"
#include "run/trainer_options.h"

namespace oxbow::cli {
namespace {

constexpr uint64_t kFloat = 4;

constexpr uint64_t kProcessBytes = uint64_t{200} << 20;  // Libraries and queues of a process.

bool IsMixedPrecision(const v1::RunConfig& config) {
  return config.model().compute_dtype() == v1::STORAGE_D_TYPE_BF16;
}

uint64_t ActivationBytes(const v1::RunConfig& config, const run::ModelFacts& facts) {
  if (facts.architecture == nullptr) return 0;
  // An anchor asks for one more row of each sample.
  const uint64_t anchored =
      config.method().anchor().weight() > 0
          ? run::RowsOfPass(config) / std::max<uint64_t>(1, run::TrainedSteps(config))
          : 0;
  const auto rows = static_cast<int64_t>(run::RowsOfPass(config) + anchored);
  return facts.architecture->ActivationBytes(
      {.compute = IsMixedPrecision(config) ? at::kBFloat16 : at::kFloat,
       .checkpoint_activations = config.model().checkpoint_activations()},
      {.rows = config.sampling().guidance() == 1 ? rows : 2 * rows,
       .on_cpu = config.model().device() == "cpu",
       .latent_shape = facts.latent_shape,
       .prompt_tokens = facts.prompt_tokens});
}

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

bool IsLora(const v1::RunConfig& config) {
  return config.model().trained() == v1::TRAINED_PART_LORA;
}

// Weights that never change. A LoRA's base is kept in the compute dtype.
uint64_t FrozenBytes(const v1::RunConfig& config, const run::ModelFacts& facts) {
  const uint64_t all = kFloat * facts.transformer_parameters;
  if (!IsLora(config)) return all - kFloat * facts.trained_parameters;
  return IsMixedPrecision(config) ? all / 2 : all;
}

bool KeepsOld(const v1::RunConfig& config) {
  return run::OldPolicyOf(config.method()) != model::OldPolicy::kNone;
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
      absl::StrFormat("%-22s %s\n", "trained", TrainedText(config)),
      absl::StrFormat("%-22s %d steps, %d updates, %d images\n", "the run", config.run().steps(),
                      config.run().steps() * batch.updates() * batch.passes(),
                      config.run().steps() * images));
}

std::string PictureText(const run::ModelFacts& facts) {
  const model::PictureSize size = model::DecodedSize(facts.factors, facts.latent_shape);
  const std::string pixels = absl::StrFormat("%d x %d pixels", size.height, size.width);
  return absl::StrFormat(
      "%-22s %s, latents [%s]\n", size.frames == 0 ? "an image" : "a video",
      size.frames == 0 ? pixels : absl::StrFormat("%d frames of %s", size.frames, pixels),
      absl::StrJoin(facts.latent_shape, ", "));
}

std::string StepTable(const v1::RunConfig& config, const flow::SamplingSpec& sampling) {
  if (config::ChosenMethod(config.method()).trains_final_latents()) {
    return "what is replayed is a whole image\n";
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
      &text, "kept steps i_off = ", kept, ", by ",
      chosen ? std::string("method.kept_steps")
             : absl::StrCat("kc < ", config.method().kept_kc_max()),
      "\n", "the clip's centre is ",
      run::RecomputesOldLogProbs(config) ? "recomputed by the learner" : "the worker's log-prob",
      ", method.old_log_prob\n");
  return text;
}

uint64_t PeakOf(const std::vector<MemoryItem>& items) {
  uint64_t always = 0;
  uint64_t start = 0;
  uint64_t training = 0;
  for (const MemoryItem& item : items) {
    (item.held == MemoryItem::Held::kAlways    ? always
     : item.held == MemoryItem::Held::kAtStart ? start
                                               : training) += item.bytes;
  }
  return always + std::max(start, training);
}

std::vector<MemoryItem> LearnerMemory(const v1::RunConfig& config, const run::ModelFacts& facts) {
  using Held = MemoryItem::Held;
  const uint64_t trained = kFloat * facts.trained_parameters;
  const uint64_t frozen = FrozenBytes(config, facts);
  const uint64_t decoder = kFloat * facts.decoder_parameters;
  const uint64_t average = config.ema().enabled() ? trained : 0;
  // An exported graph may have operators that no dry run follows.
  const uint64_t activations = ActivationBytes(config, facts);
  const bool unknown = activations == 0 && facts.architecture != nullptr;
  const bool moves = config.method().reference_every() > 0;
  return {
      {"trained weights", trained},
      {"frozen weights", frozen},
      // The reference of a LoRA is the model with its adapter switched off.
      {"reference policy", IsLora(config) && !moves ? 0 : trained},
      {"gradients", trained, Held::kInTraining},
      {"AdamW moments", 2 * trained, Held::kInTraining},
      {"running average", average},
      {"old policy", KeepsOld(config) ? trained : 0},
      {"copy to undo a step", 3 * trained + average, Held::kInTraining},
      {"published snapshots", config.services().snapshots_kept() * trained + 2 * (frozen + decoder),
       Held::kInTraining},
      {"text encoders, first", facts.text_encoder_bytes, Held::kAtStart},
      {"decoder of images", decoder},
      {"casts of weights", IsMixedPrecision(config) ? trained / 2 : 0, Held::kInTraining},
      {unknown ? "activations, unknown" : "activations, about", activations, Held::kInTraining},
      {"experience, at most", config.services().sink_bytes_max(), Held::kInTraining}};
}

std::vector<MemoryItem> WorkerMemory(const v1::RunConfig& config, const run::ModelFacts& facts) {
  const uint64_t trained = kFloat * facts.trained_parameters;
  const uint64_t frozen = FrozenBytes(config, facts);
  const uint64_t decoder = kFloat * facts.decoder_parameters;
  const bool merges = IsLora(config) && config.model().lora().merge_for_rollouts();
  return {{"trained weights", trained},
          {"frozen weights", frozen},
          {"merged weights, at most", merges ? frozen : 0},
          {"casts of weights", IsMixedPrecision(config) ? trained / 2 : 0},
          {"decoder of images", decoder},
          // One snapshot to relay, the trained part of the next one, and copies to go back to.
          {"snapshots", 4 * trained + frozen + decoder}};
}

uint32_t ProcessesOf(const v1::RunConfig& config) {
  const v1::ServiceConfig& services = config.services();
  const uint32_t rewards = run::OwnRewards(config.reward()).empty() ? 0 : services.reward_servers();
  return config.learner().ranks() + services.rollout_workers() + rewards + 1;
}

uint64_t MemoryNeeded(const v1::RunConfig& config, const run::ModelFacts& facts, uint64_t rewards) {
  std::vector<MemoryItem> learner = LearnerMemory(config, facts);
  for (MemoryItem& item : learner) {
    // The sink's bound is what experience may take; what it will take is known.
    if (item.what == "experience, at most") {
      item.bytes = run::SinkBytesNeeded(config, facts.latent_shape);
    }
  }
  return PeakOf(learner) * config.learner().ranks() +
         PeakOf(WorkerMemory(config, facts)) * config.services().rollout_workers() +
         kProcessBytes * ProcessesOf(config) + rewards;
}

std::optional<config::Problem> CheckMemory(const v1::RunConfig& config,
                                           const run::ModelFacts& facts, uint64_t available,
                                           uint64_t rewards) {
  const uint64_t needed = MemoryNeeded(config, facts, rewards);
  if (config.model().device() != "cpu" || available == 0 || needed <= available) {
    return std::nullopt;
  }
  return config::Problem{
      config::Severity::kWarning, "batch.rows_per_pass",
      absl::StrCat("the processes of the run take ", BytesText(needed),
                   " of memory, this machine "
                   "has ",
                   BytesText(available),
                   " left: lower it, batch.group_size or services.rollout_workers, or set "
                   "model.checkpoint_activations")};
}

std::string DeviceText(const v1::RunConfig& config, const run::ModelFacts& facts,
                       uint64_t rewards) {
  if (rewards == 0) return "";
  const uint64_t processes = MemoryNeeded(config, facts, 0);
  return absl::StrFormat("%-22s %s: %s of the run, %s of its rewards\n",
                         absl::StrCat("on ", config.model().device()),
                         BytesText(processes + rewards), BytesText(processes), BytesText(rewards));
}

uint64_t DiskBytesNeeded(const v1::RunConfig& config, const run::ModelFacts& facts) {
  const uint64_t trained = kFloat * facts.trained_parameters;
  const uint64_t checkpoint = trained * (config.ema().enabled() ? 4 : 3);
  // Trained and averaged weights; an adapter is written in two formats.
  const uint64_t published =
      IsLora(config) ? 4 * trained : 2 * kFloat * facts.transformer_parameters;
  const uint64_t groups = std::max(1U, config.batch().groups());
  const uint64_t conditioning = facts.conditioning_bytes;
  const v1::AdaptationConfig& adaptation = config.adaptation();
  uint64_t buffer = 0;  // Nothing is offered where nothing is drawn.
  if (config.replay().fraction() > 0 || adaptation.enabled()) {
    buffer = config.replay().capacity() *
             run::EntryBytes(config.sampling(), facts.latent_shape, conditioning);
  }
  if (adaptation.enabled()) {
    const uint64_t prompts = adaptation.hard_capacity() > 0 ? adaptation.hard_capacity() : groups;
    buffer += prompts * conditioning;
    buffer += groups * adaptation.recent_steps() *
              (run::GroupBytesMax(config, facts.latent_shape) + conditioning);
  }
  return (config.checkpoint().keep() + 1) * checkpoint + published + 2 * buffer;
}

std::string MemoryText(const v1::RunConfig& config, const run::ModelFacts& facts) {
  std::string text = absl::StrFormat("%-22s %d parameters, %d trained\n", "the transformer",
                                     facts.transformer_parameters, facts.trained_parameters);
  const std::vector<MemoryItem> items = LearnerMemory(config, facts);
  for (const MemoryItem& item : items) {
    absl::StrAppend(&text, absl::StrFormat("  %-20s %s\n", item.what, BytesText(item.bytes)));
  }
  return absl::StrCat(
      text,
      absl::StrFormat("%-22s %s; %d trained steps in a backward pass\n", "the learner",
                      BytesText(PeakOf(items)), run::RowsOfPass(config)),
      absl::StrFormat("%-22s %s of services.sink_bytes_max\n", "experience needs",
                      BytesText(run::SinkBytesNeeded(config, facts.latent_shape))));
}

// Nothing where the network takes no scale.
std::string GuidanceText(const v1::RunConfig& config, double scale) {
  if (scale == 0) return "";
  const bool set = config.sampling().embedded_guidance() > 0;
  return absl::StrFormat("%-22s %g, %s\n", "guidance of the network", scale,
                         set ? "by sampling.embedded_guidance" : "its own");
}

absl::StatusOr<std::string> RunPlanText(const v1::RunConfig& config, const run::ModelFacts& facts) {
  v1::SamplingConfig resolved = config.sampling();
  run::ResolveSampling(facts.shift, facts.unipc_scheduler, resolved);
  double guidance = 0;
  if (facts.architecture != nullptr) {
    OXBOW_ASSIGN_OR_RETURN(guidance, run::EmbeddedGuidance(*facts.architecture, config.sampling()));
  }
  resolved.set_embedded_guidance(guidance);
  OXBOW_ASSIGN_OR_RETURN(const flow::SamplingSpec sampling, run::SamplingSpecFromConfig(resolved));
  return absl::StrCat(PictureText(facts), BatchText(config), GuidanceText(config, guidance), "\n",
                      StepTable(config, sampling), "\n", MemoryText(config, facts));
}

}  // namespace oxbow::cli
