// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/plan/check_files.h"
#include "cli/plan/machine_load.h"
#include "cli/plan/memory_check.h"
#include "cli/plan/process_table.h"
#include "cli/plan/reward_endpoints.h"
#include "cli/plan/reward_plan.h"
#include "cli/plan/run_plan.h"
#include "config/run_config.h"
#include "rpc/channel.h"
#include "rpc/tls_flags.h"
#include "run/run_lock.h"
#include "services/learner/record/facts_of_run.h"

namespace oxbow::cli {
namespace {

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
    problems = EndpointProblems(reward, AskEndpoints(reward, kEndpointPatience));
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
  const absl::Status rewards =
      CheckOwnRewards(elsewhere ? WithoutDevices(resolved.config) : resolved.config, "validate")
          .status();
  if (!rewards.ok()) std::cerr << "oxbow validate: " << rewards.message() << "\n";
  if (!elsewhere) (void)AskServers(resolved, flags.tls);  // Another error ends it.
}

absl::StatusOr<Gpus> GpusOf(const Flags& flags) {
  return flags.gpus.empty() ? GpusHere() : ParseGpus(flags.gpus);
}

int Run(const Flags& flags) {
  const bool elsewhere = !flags.gpus.empty();
  const absl::StatusOr<Gpus> gpus = GpusOf(flags);
  if (!gpus.ok()) {
    std::cerr << "oxbow validate: " << gpus.status().message() << "\n";
    return ExitCodeOf(gpus.status());
  }
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
  if (!status.ok()) {
    std::cerr << "oxbow validate: " << status.message() << "\n";
    return ExitCodeOf(status);
  }
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
  command->add_option("--set", flags->set, "KEY=VALUE over everything else; may be repeated")
      ->allow_extra_args(false);
  command->add_option(
      "--gpus", flags->gpus,
      "NUMBERxGIB, such as 8x80: plan for a machine with such GPUs, not for this one");
  rpc::AddTlsFlags(*command, flags->tls);
  command->callback([flags, &exit_code] { exit_code = Run(*flags); });
}

}  // namespace oxbow::cli
