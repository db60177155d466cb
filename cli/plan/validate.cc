// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/plan/check_files.h"
#include "cli/plan/memory_check.h"
#include "cli/plan/resource_plan.h"
#include "cli/plan/reward_plan.h"
#include "cli/plan/run_plan.h"
#include "config/run_config.h"
#include "core/model/device_memory.h"
#include "services/learner/facts_of_run.h"

namespace oxbow::cli {
namespace {

void Print(const config::Problem& problem, const config::Provenance& provenance) {
  std::cerr << config::ProblemLine(problem, provenance)
            << (problem.severity == config::Severity::kWarning ? " (warning)" : "") << "\n";
}

absl::Status PrintPlan(const config::ResolvedConfig& resolved) {
  OXBOW_ASSIGN_OR_RETURN(const run::ModelFacts facts, run::ReadModelFacts(resolved.config));
  OXBOW_ASSIGN_OR_RETURN(const std::string text, RunPlanText(resolved.config, facts));
  for (const config::Problem& problem : CheckMemory(resolved.config, facts)) {
    Print(problem, resolved.provenance);
  }
  OXBOW_ASSIGN_OR_RETURN(const std::vector<reward::RewardFacts> rewards,
                         CheckOwnRewards(resolved.config));
  std::cout << text
            << DeviceText(resolved.config, facts, RewardBytes(resolved.config), model::GpuBytes())
            << RewardsText(resolved.config, rewards);
  return absl::OkStatus();
}

int Run(const std::string& file, const std::vector<std::string>& set) {
  const auto resolved = config::LoadRunConfig(file, set, config::ProcessEnvironment());
  if (!resolved.ok()) {
    std::cerr << resolved.status().message() << "\n";
    return ExitCodeOf(resolved.status());
  }
  const std::vector<config::Problem> problems = CheckRun(resolved->config);
  for (const config::Problem& problem : problems) Print(problem, resolved->provenance);
  absl::Status status = config::FirstError(problems, resolved->provenance);
  if (!status.ok()) return ExitCodeOf(status);
  status = PrintPlan(*resolved);
  if (!status.ok()) {
    std::cerr << "oxbow validate: " << status.message() << "\n";
    return ExitCodeOf(status);
  }
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
  struct Flags {
    std::string file;
    std::vector<std::string> set;
  };
  const auto flags = std::make_shared<Flags>();  // Lives as long as the callback below.
  CLI::App* command = app.add_subcommand("validate", "Check a run before it starts");
  command->footer(
      "Prints what the run will do and take. Exit code 2 with FILE:LINE: key: reason, 4 if the "
      "model\n"
      "cannot be read.\nExample: oxbow validate configs/digits.yaml");
  command->add_option("file", flags->file, "run YAML")->required();
  command->add_option("--set", flags->set, "KEY=VALUE over everything else; may be repeated")
      ->allow_extra_args(false);
  command->callback([flags, &exit_code] { exit_code = Run(flags->file, flags->set); });
}

}  // namespace oxbow::cli
