#include "cli/plan/run_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "cli/plan/check_files.h"
#include "config/method_rules.h"
#include "config/validate.h"
#include "core/flow/truncation.h"
#include "core/flow/window.h"
#include "core/model/velocity_model.h"
#include "rpc/convert_torch.h"
#include "rpc/convert_window.h"
#include "services/learner/trainer_options.h"

namespace oxbow::cli {
namespace {

constexpr uint64_t kFloat = 4;

uint64_t StorageBytes(const v1::SamplingConfig& sampling) {
  return sampling.storage() == v1::STORAGE_D_TYPE_F32 ? 4 : 2;
}

std::string BytesText(uint64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return absl::StrFormat(unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

// Rows of one sample.
uint64_t TrainedSteps(const v1::RunConfig& config) {
  if (rpc::TrainsFinalLatents(config.method())) {
    const v1::TimesConfig& times = config.method().times();
    const auto levels = static_cast<uint32_t>(times.fraction() * config.sampling().steps());
    return times.count() > 0 ? times.count() : levels;
  }
  const absl::StatusOr<flow::WindowPlan> window = rpc::WindowFromConfig(config.sampling());
  return window.ok() ? flow::WindowAt(*window, /*run_seed=*/0, /*step=*/0).size() : 0;
}

bool Shorter(const v1::RunConfig& config) {
  return config.model().compute_dtype() == v1::STORAGE_D_TYPE_BF16;
}

uint64_t ActivationBytes(const v1::RunConfig& config, const run::ModelFacts& facts) {
  if (facts.architecture == nullptr) return 0;
  // An anchor asks for one more row of each sample.
  const uint64_t anchored = config.method().anchor().weight() > 0
                                ? RowsOfPass(config) / std::max<uint64_t>(1, TrainedSteps(config))
                                : 0;
  const auto rows = static_cast<int64_t>(RowsOfPass(config) + anchored);
  return facts.architecture->ActivationBytes(
      {.compute = Shorter(config) ? at::kBFloat16 : at::kFloat,
       .recompute_blocks = config.model().checkpoint_activations()},
      {.rows = config.sampling().guidance() == 1 ? rows : 2 * rows,
       .on_cpu = config.model().device() == "cpu",
       .latent_shape = facts.latent_shape,
       .prompt_tokens = facts.prompt_tokens});
}

// "5: 0-4", "2: 2 of 0-4, neighbours, drawn every 1 learner steps"
std::string TrainedText(const v1::RunConfig& config) {
  const v1::SamplingConfig& sampling = config.sampling();
  if (rpc::TrainsFinalLatents(config.method())) {
    return absl::StrCat("final pictures, at ", TrainedSteps(config), " times each");
  }
  const absl::StatusOr<flow::WindowPlan> window = rpc::WindowFromConfig(sampling);
  if (!window.ok()) return "no";
  return absl::StrCat(flow::WindowAt(*window, /*run_seed=*/0, /*step=*/0).size(), " (",
                      flow::Describe(*window), ") of ", sampling.steps(), " sampling steps");
}

// Of one trajectory, at most; a stochastic tail brings all from where its head ends.
uint64_t LatentsSent(const v1::RunConfig& config) {
  if (rpc::TrainsFinalLatents(config.method())) return 1;
  const absl::StatusOr<flow::WindowPlan> window = rpc::WindowFromConfig(config.sampling());
  const bool tails =
      config.replay().fraction() > 0 && config.sampling().tail() == v1::TAIL_KIND_SDE;
  if (tails || !window.ok()) return config.sampling().steps() + 1;
  return static_cast<uint64_t>(flow::LongestSpan(*window)) + 1;
}

bool IsLora(const v1::RunConfig& config) {
  return config.model().trained() == v1::TRAINED_PART_LORA;
}

// What never changes. A LoRA's base is kept in the type of products.
uint64_t FrozenBytes(const v1::RunConfig& config, const run::ModelFacts& facts) {
  const uint64_t all = kFloat * facts.transformer_parameters;
  if (!IsLora(config)) return all - kFloat * facts.trained_parameters;
  return Shorter(config) ? all / 2 : all;
}

bool KeepsOld(const v1::RunConfig& config) {
  return learner::OldPolicyOf(config.method()) != model::OldPolicy::kNone;
}

// Of one group on its way.
uint64_t GroupBytes(const v1::RunConfig& config, const run::ModelFacts& facts) {
  uint64_t latent = StorageBytes(config.sampling());
  for (const int64_t size : facts.latent_shape) latent *= static_cast<uint64_t>(size);
  return latent * LatentsSent(config) * config.batch().group_size();
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

std::string StepTable(const v1::RunConfig& config, const flow::SamplingSpec& sampling) {
  if (!config::NeedsDensity(config.method())) return "what is replayed is a whole picture\n";
  const std::vector<double> kc = flow::SensitivityTable(sampling);
  const int kept = learner::KeptStepsOf(config, sampling);
  std::string text = absl::StrFormat("%4s  %6s  %9s  %s\n", "step", "sigma", "kc", "");
  for (int i = 0; i < sampling.steps(); ++i) {
    const auto at = static_cast<size_t>(i);
    const std::string value = sampling.sde[at] ? absl::StrFormat("%9.4g", kc[at]) : "      ode";
    absl::StrAppend(&text, absl::StrFormat("%4d  %6.4f  %s  %s\n", i, sampling.sigmas[at], value,
                                           i < kept ? "kept" : ""));
  }
  const bool chosen = config.method().kept_steps() > 0;
  absl::StrAppend(&text, "kept steps i_off = ", kept, ", by ",
                  chosen ? std::string("method.kept_steps")
                         : absl::StrCat("kc < ", config.method().kept_kc_max()),
                  "\n");
  return text;
}

uint64_t RowsOfPass(const v1::RunConfig& config) {
  const v1::BatchConfig& batch = config.batch();
  const uint64_t images = uint64_t{batch.groups()} * batch.group_size();
  const uint64_t of_update = (images + batch.updates() - 1) / batch.updates();
  const uint64_t ranks = std::max(1u, config.learner().ranks());
  const uint64_t samples = (of_update + ranks - 1) / ranks;
  const uint64_t steps = TrainedSteps(config);
  if (batch.rows_per_pass() == 0 || steps == 0) return samples * steps;
  return steps * std::min(samples, std::max<uint64_t>(1, batch.rows_per_pass() / steps));
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
  const bool moves = config.method().reference_every() > 0;
  return {
      {"trained weights", trained},
      {"frozen weights", frozen},
      // LoRA: the adapter switched off.
      {"reference policy", IsLora(config) && !moves ? 0 : trained},
      {"gradients", trained, Held::kInTraining},
      {"AdamW moments", 2 * trained, Held::kInTraining},
      {"running average", average},
      {"old policy", KeepsOld(config) ? trained : 0},
      {"copy to undo a step", 3 * trained + average, Held::kInTraining},
      {"published snapshots", config.services().snapshots_kept() * trained + 2 * (frozen + decoder),
       Held::kInTraining},
      {"text encoders, first", facts.text_encoder_bytes, Held::kAtStart},
      {"decoder of pictures", decoder},
      {"casts of weights", Shorter(config) ? trained / 2 : 0, Held::kInTraining},
      {"activations, about", ActivationBytes(config, facts), Held::kInTraining},
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
          {"casts of weights", Shorter(config) ? trained / 2 : 0},
          {"decoder of pictures", decoder},
          // One snapshot for others, the next one's trained part, and copies of it to go back to.
          {"snapshots", 4 * trained + frozen + decoder}};
}

uint64_t DiskBytesNeeded(const v1::RunConfig& config, const run::ModelFacts& facts) {
  const uint64_t trained = kFloat * facts.trained_parameters;
  const uint64_t checkpoint = trained * (config.ema().enabled() ? 4 : 3);
  // As trained and averaged; of an adapter in two formats.
  const uint64_t published =
      IsLora(config) ? 4 * trained : 2 * kFloat * facts.transformer_parameters;
  const uint64_t groups = std::max(1U, config.batch().groups());
  const uint64_t conditioning = facts.conditioning_bytes;
  const v1::AdaptationConfig& adaptation = config.adaptation();
  uint64_t buffer = 0;  // Nothing is offered to one that nobody draws from.
  if (config.replay().fraction() > 0 || adaptation.enabled()) {
    buffer = config.replay().capacity() * (OfferBytes(config, facts) / groups);
  }
  if (adaptation.enabled()) {
    const uint64_t prompts = adaptation.hard_capacity() > 0 ? adaptation.hard_capacity() : groups;
    buffer += prompts * conditioning;
    buffer += groups * adaptation.recent_steps() * (GroupBytes(config, facts) + conditioning);
  }
  return (config.checkpoint().keep() + 1) * checkpoint + published + 2 * buffer;
}

uint64_t SinkBytesNeeded(const v1::RunConfig& config, const run::ModelFacts& facts) {
  const uint64_t group = GroupBytes(config, facts);
  return group * (uint64_t{config.batch().groups()} * (config.off_policy().staleness_max() + 2) +
                  config.batch().refill_max());
}

std::string MemoryText(const v1::RunConfig& config, const run::ModelFacts& facts) {
  std::string text = absl::StrFormat("%-22s %d parameters, %d trained\n", "the transformer",
                                     facts.transformer_parameters, facts.trained_parameters);
  const std::vector<MemoryItem> items = LearnerMemory(config, facts);
  for (const MemoryItem& item : items) {
    absl::StrAppend(&text, absl::StrFormat("  %-20s %s\n", item.what, BytesText(item.bytes)));
  }
  return absl::StrCat(text,
                      absl::StrFormat("%-22s %s; %d trained steps in a backward pass\n",
                                      "the learner", BytesText(PeakOf(items)), RowsOfPass(config)),
                      absl::StrFormat("%-22s %s of services.sink_bytes_max\n", "experience needs",
                                      BytesText(SinkBytesNeeded(config, facts))));
}

absl::StatusOr<std::string> RunPlanText(const v1::RunConfig& config, const run::ModelFacts& facts) {
  v1::SamplingConfig resolved = config.sampling();
  resolved.set_shift(facts.shift);
  OXBOW_ASSIGN_OR_RETURN(const flow::SamplingSpec sampling, rpc::SamplingSpecFromConfig(resolved));
  return absl::StrCat(BatchText(config), "\n", StepTable(config, sampling), "\n",
                      MemoryText(config, facts));
}

}  // namespace oxbow::cli
