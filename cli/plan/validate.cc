// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/validate.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/plan/check_files.h"
#include "cli/plan/machine_load.h"
#include "cli/plan/resource_plan.h"
#include "cli/plan/reward_plan.h"
#include "cli/run_option.h"
#include "cli/terminal.h"
#include "config/chosen_method.h"
#include "config/rules.h"
#include "config/run_config.h"
#include "core/flow/compression.h"
#include "core/flow/sampler.h"
#include "core/flow/split_tree.h"
#include "core/flow/window.h"
#include "rpc/channel.h"
#include "rpc/tls_flags.h"
#include "run/rewards.h"
#include "run/run_lock.h"
#include "run/sampling_spec.h"
#include "run/trainer_options.h"
#include "services/learner/record/facts_of_run.h"

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

void Print(const config::Problem& problem, const config::Provenance& provenance) {
  std::cerr << config::ProblemLine(problem, provenance)
            << (problem.severity == config::Severity::kWarning ? " (warning)" : "") << "\n";
}

struct Flags {
  std::string file;
  std::vector<std::string> set;
  std::string gpus;     // The machine that the run is meant for; empty: this one.
  rpc::TlsOptions tls;  // For the servers of reward.endpoints.
};

// A GPU that cannot hold its processes is an error once everything else has been said.
absl::Status PrintPlan(config::ResolvedConfig resolved, const Gpus& gpus, bool elsewhere) {
  OXBOW_ASSIGN_OR_RETURN(const run::ModelFacts facts, run::ReadModelFacts(resolved.config));
  const v1::RunConfig& config = resolved.config;
  Settle(facts, RewardBytes(config.reward()), gpus, resolved);
  OXBOW_ASSIGN_OR_RETURN(const std::string text, RunPlanText(config, facts));
  const std::vector<ProcessRow> rows = ProcessesOn(gpus, config, facts);
  const std::vector<config::Problem> problems = CheckMemory(config, rows, gpus, elsewhere);
  for (const config::Problem& problem : problems) Print(problem, resolved.provenance);
  OXBOW_ASSIGN_OR_RETURN(const std::vector<reward::RewardFacts> rewards,
                         CheckOwnRewards(elsewhere ? WithoutDevices(config) : config, "validate"));
  std::cout << text;
  if (const std::string memory = MemoryChoice(resolved, rows, gpus); !memory.empty()) {
    std::cout << absl::StrFormat("%-22s %s\n", "model.memory", memory);
  }
  std::cout << "\n" << ProcessTable(rows, gpus) << "\n" << RewardsText(config, rewards);
  for (const config::Problem& problem : problems) {  // Those above have scrolled away.
    if (problem.severity == config::Severity::kError) Print(problem, resolved.provenance);
  }
  OXBOW_RETURN_IF_ERROR(FirstMemoryError(problems, resolved.provenance));
  const std::string run_dir = absl::StrCat(config.run().directory(), "/", config.run().name());
  if (elsewhere || run::IsLive(run_dir)) return absl::OkStatus();  // It has what it needs.
  const std::vector<config::Problem> disks = CheckDisks(config, facts);
  for (const config::Problem& problem : disks) {
    if (problem.severity != config::Severity::kError) Print(problem, resolved.provenance);
  }
  return config::FirstError(disks, resolved.provenance);
}

// Warns of servers of reward.endpoints that are missing: the run would wait for them. The error is
// that of a reward which none of them has.
absl::Status AskServers(const config::ResolvedConfig& resolved, const rpc::TlsOptions& tls) {
  const v1::RewardConfig& reward = resolved.config.reward();
  if (reward.endpoints().empty()) return absl::OkStatus();
  if (resolved.config.services().http_proxy()) rpc::UseHttpProxy(true);
  std::vector<config::Problem> problems;
  if (const absl::Status usable = rpc::UseTls(tls).status(); usable.ok()) {
    problems = CheckEndpoints(reward);
  } else {
    problems.push_back({config::Severity::kWarning, "reward.endpoints",
                        "not asked: " + std::string(usable.message())});
  }
  for (const config::Problem& problem : problems) Print(problem, resolved.provenance);
  return config::FirstError(problems, resolved.provenance);
}

bool UsesGpus(const v1::RunConfig& config) {
  std::vector<std::string> devices = {config.model().device(), config.model().encoder_device()};
  for (const v1::ScorerConfig& scorer : config.reward().scorers()) {
    devices.push_back(scorer.device());
  }
  return std::ranges::any_of(devices,
                             [](const std::string& device) { return device.starts_with("cuda"); });
}

// While the model is not there yet, rewards can be loaded and their servers asked nonetheless.
void CheckRewardsAlone(const config::ResolvedConfig& resolved, const Flags& flags,
                       const std::vector<config::Problem>& problems) {
  for (const config::Problem& problem : problems) {
    if (problem.severity == config::Severity::kError && KeepsRewardsAway(problem.key)) return;
  }
  const bool elsewhere = !flags.gpus.empty();
  (void)Ended(
      "validate",
      CheckOwnRewards(elsewhere ? WithoutDevices(resolved.config) : resolved.config, "validate")
          .status());
  if (!elsewhere) (void)AskServers(resolved, flags.tls);  // Another error ends it.
}

int Run(const Flags& flags) {
  const bool elsewhere = !flags.gpus.empty();
  const absl::StatusOr<Gpus> gpus = elsewhere ? ParseGpus(flags.gpus) : GpusHere();
  if (!gpus.ok()) return Ended("validate", gpus.status());
  const auto resolved =
      config::LoadRunConfig(flags.file, flags.set, config::ProcessEnvironment(), gpus->count);
  if (!resolved.ok()) {
    std::cerr << resolved.status().message() << "\n";
    return ExitCodeOf(resolved.status());
  }
  const std::vector<config::Problem> problems =
      elsewhere ? CheckRunOn(gpus->count, resolved->config) : CheckRun(resolved->config);
  for (const config::Problem& problem : problems) Print(problem, resolved->provenance);
  if (elsewhere && !UsesGpus(resolved->config)) {
    std::cerr << "--gpus " << flags.gpus << ": this run uses no GPU: model.device is "
              << resolved->config.model().device() << "; set it to cuda (warning)\n";
  }
  absl::Status status = config::FirstError(problems, resolved->provenance);
  if (!status.ok()) {
    CheckRewardsAlone(*resolved, flags, problems);
    return ExitCodeOf(status);
  }
  status = PrintPlan(*resolved, *gpus, elsewhere);
  if (IsOutOfMemory(status)) return ExitCodeOf(status);  // Said above.
  if (!status.ok()) return Ended("validate", status);
  if (!elsewhere) status = AskServers(*resolved, flags.tls);
  if (!status.ok()) return ExitCodeOf(status);  // Said above.
  std::cout << "\nvalid: " << resolved->config.run().name() << ", "
            << resolved->config.run().steps() << " steps\n";
  if (const std::string recipes = config::RecipesOf(resolved->provenance); !recipes.empty()) {
    std::cout << absl::StrFormat("  %-9s%s\n", "recipe", recipes);
  }
  for (const auto& [label, value] : learner::HeadOf(resolved->config)) {
    std::cout << absl::StrFormat("  %-9s%s\n", label, value);
  }
  return kExitOk;
}

}  // namespace

void AddValidate(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<Flags>();  // Lives as long as the callback below.
  CLI::App* command = app.add_subcommand(kValidate.name, kValidate.says);
  command->footer(
      "Prints what the run will do and take, and which process is on which device. Warns of a "
      "server of\nreward.endpoints that does not answer. Exit code 2 with FILE:LINE: key: reason, "
      "4 if the model\ncannot be read, 5 if a disk is too small, 7 if a GPU is.\n"
      "Example: oxbow validate configs/digits.yaml");
  command->add_option("file", flags->file, "run YAML")->required();
  AddSettings(*command, flags->set);
  command->add_option(
      "--gpus", flags->gpus,
      "NUMBERxGIB, such as 8x80: plan for a machine with such GPUs, not for this one");
  rpc::AddTlsFlags(*command, flags->tls);
  command->callback([flags, &exit_code] { exit_code = Run(*flags); });
}

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
    absl::StrAppendFormat(&text, "%4d  %6.4f  %s  %s\n", i, sampling.sigmas[at], value,
                          i < kept ? "kept" : "");
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
