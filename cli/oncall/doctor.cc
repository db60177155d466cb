// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/oncall/checkup.h"
#include "cli/oncall/fleet_checks.h"
#include "cli/oncall/run_checks.h"
#include "cli/plan/machine_load.h"
#include "cli/plan/reward_plan.h"
#include "cli/report/run_summary.h"
#include "cli/run/run_display.h"
#include "cli/run_option.h"
#include "cli/terminal.h"
#include "config/run_config.h"
#include "rpc/channel.h"
#include "rpc/tls_flags.h"

namespace oxbow::cli {
namespace {

struct DoctorFlags {
  std::string file;
  std::vector<std::string> set;
  std::string learner;
  std::string run_dir;
  std::vector<std::string> ports;
  double timeout_s = 3;
  std::string format = "text";
  bool strict = false;
  rpc::TlsOptions tls;
};

void JudgeConfig(const DoctorFlags& flags, Checks& checks, MachineNeeds& needs,
                 std::string& directory) {
  const auto resolved =
      config::LoadRunConfig(flags.file, flags.set, config::ProcessEnvironment(), GpusHere().count);
  if (!resolved.ok()) {
    checks.push_back({"config", flags.file, Grade::kFail, std::string(resolved.status().message()),
                      "correct the line"});
    return;
  }
  directory = resolved->config.run().directory();
  checks = CheckConfig(*resolved, needs);
  const bool failed = std::any_of(checks.begin(), checks.end(), [](const Check& check) {
    return check.verdict == Grade::kFail && KeepsRewardsAway(check.name);
  });
  if (failed) return;
  checks.push_back(CheckRewards(resolved->config));
  if (resolved->config.services().http_proxy()) rpc::UseHttpProxy(true);
  Append(CheckCopies(resolved->config), checks);
  Append(CheckRewardEndpoints(resolved->config), checks);
}

// If no fleet is named, asks nothing; nor if its run has done all its steps.
absl::StatusOr<FleetFacts> AskFleetOf(const DoctorFlags& flags, bool done) {
  const absl::Duration timeout = absl::Seconds(flags.timeout_s);
  if (!flags.learner.empty()) return AskFleet(flags.learner, timeout);
  if (!flags.run_dir.empty() && !done) return AskFleetOfRun(flags.run_dir, timeout);
  return FleetFacts();
}

bool NobodyAnswered(const FleetFacts& fleet) {
  return std::all_of(fleet.services.begin(), fleet.services.end(), [](const ServiceFacts& service) {
    return service.state == ServiceFacts::State::kSilent;
  });
}

// A directory in the place of a run's file is that of a run.
absl::StatusOr<DoctorFlags> Sorted(DoctorFlags flags) {
  std::error_code ignored;
  flags.file = RunNamed(flags.file);
  if (!std::filesystem::is_directory(flags.file, ignored)) return flags;
  if (!flags.run_dir.empty() || !flags.learner.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("give one run: its directory, --run or --learner: ", flags.file));
  }
  flags.run_dir = std::exchange(flags.file, "");
  return flags;
}

absl::Status Examine(const DoctorFlags& given, int& exit_code) {
  OXBOW_ASSIGN_OR_RETURN(const DoctorFlags flags, Sorted(given));
  const absl::StatusOr<absl::Time> certificate_ends =
      rpc::UseTls(TlsOfRun(flags.tls, flags.run_dir));
  // Without usable files nobody answers; a wrong combination of flags is no finding.
  if (absl::IsInvalidArgument(certificate_ends.status())) return certificate_ends.status();
  Checks checks;
  MachineNeeds needs;
  std::string directory = flags.run_dir.empty() ? "." : flags.run_dir;
  FleetFacts fleet;
  std::optional<RunSummary> run;
  if (!flags.run_dir.empty()) {
    OXBOW_RETURN_IF_ERROR(FindRun(flags.run_dir));
    if (auto summary = SummaryOf(flags.run_dir); summary.ok()) run = *std::move(summary);
  }
  if (certificate_ends.ok()) {
    const bool done = run && run->state() == "done";
    OXBOW_ASSIGN_OR_RETURN(fleet, AskFleetOf(flags, done));
    // A run that was ended has nobody to answer.
    if (run && !run->live && NobodyAnswered(fleet)) fleet = FleetFacts();
  }
  if (!flags.file.empty()) JudgeConfig(flags, checks, needs, directory);
  if (!certificate_ends.ok()) {
    checks.push_back(
        {"machine", "certificate", Grade::kFail, std::string(certificate_ends.status().message()),
         "correct the file (docs/operations.md#tls); oxbow certificates makes new ones"});
  }
  needs.met = fleet.status.has_value();
  Checks all = CheckMachine(
      directory, flags.ports, needs,
      certificate_ends.ok() ? *certificate_ends - absl::Now() : absl::InfiniteDuration());
  Append(checks, all);
  Append(JudgeFleet(fleet), all);
  if (run) {
    Append(JudgeRun(*run), all);
    if (!run->live) Append(CheckCheckpoints(flags.run_dir), all);
  }
  const size_t columns = TerminalColumns(STDOUT_FILENO).value_or(0);
  std::cout << (flags.format == "json" ? CheckupJson(all) : CheckupText(all, columns));
  exit_code = CheckupExitCode(all, flags.strict);
  return absl::OkStatus();
}

}  // namespace

void AddDoctor(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<DoctorFlags>();  // Lives as long as the callback below.
  CLI::App* command = app.add_subcommand(kDoctor.name, kDoctor.says);
  command->footer(
      "One line per check: ok, warn or fail, and what to do. Exit code: 0 nothing failed, 1 "
      "something\ndid (with --strict: or warns), 4 --run is no run.\n"
      "Examples: oxbow doctor configs/digits.yaml\n"
      "          oxbow doctor runs/digits\n"
      "          oxbow doctor --learner 10.0.0.7:7070 --format json");
  command->add_option("RUN", flags->file,
                      "run YAML that is to run here, or the directory of a run as --run");
  AddSettings(*command, flags->set);
  auto* learner = command->add_option("--learner", flags->learner, "host:port of a live learner");
  command->add_option("--run,--run-dir", flags->run_dir, "directory of a run")
      ->transform(RunNamed)
      ->excludes(learner);
  command->add_option("--port", flags->ports, "host:port that must be free; may be repeated")
      ->allow_extra_args(false);
  AddTimeout(*command, flags->timeout_s, "timeout of one call to a process, in seconds");
  AddFormat(*command, flags->format);
  command->add_flag("--strict", flags->strict, "warnings count as failures");
  rpc::AddTlsFlags(*command, flags->tls);
  command->callback([flags, &exit_code] {
    const absl::Status status = Examine(*flags, exit_code);
    if (!status.ok()) exit_code = Ended("doctor", status);
  });
}

}  // namespace oxbow::cli
