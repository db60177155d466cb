// SPDX-License-Identifier: Apache-2.0
#include "cli/oncall/doctor.h"

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/memory_limits.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/oncall/fleet_checks.h"
#include "cli/plan/check_files.h"
#include "cli/plan/machine_load.h"
#include "cli/plan/resource_plan.h"
#include "cli/plan/reward_plan.h"
#include "cli/run/run_display.h"
#include "cli/run_option.h"
#include "cli/terminal.h"
#include "config/file_paths.h"
#include "core/model/device.h"
#include "rpc/channel.h"
#include "rpc/tls_flags.h"
#include "run/sampling_spec.h"
#include "services/learner/checkpoint/checkpoint_store.h"
#include "services/learner/checkpoint/checkpoint_writer.h"

namespace oxbow::cli {

namespace {

// The needs of the run of `config` on one machine.
MachineNeeds NeedsOf(const v1::RunConfig& config, const run::ModelFacts& facts,
                     const std::vector<ProcessRow>& rows) {
  MachineNeeds needs;
  needs.busy_processes = config.learner().ranks() + config.services().rollout_workers();
  needs.processes = ProcessesOf(config);
  needs.memory = HostBytes(rows);
  needs.memory_limits = MemoryLimitsOf(config, UsableMemory());
  needs.disks = DiskSharesOf(config, facts);
  needs.http_proxy = config.services().http_proxy();
  return needs;
}

// "config/reward.endpoints": each server of reward.endpoints that does not answer, and each reward
// that none has. Empty if the run has no such server.
Checks CheckRewardEndpoints(const v1::RunConfig& config) {
  const v1::RewardConfig& reward = config.reward();
  if (reward.endpoints().empty()) return {};
  Checks checks;
  for (const config::Problem& problem : CheckEndpoints(reward)) {
    const bool silent = problem.key == "reward.endpoints";
    checks.push_back({"config", problem.key, Grade::kFail, problem.message,
                      silent ? "start the server, or correct reward.endpoints (docs/own_reward.md)"
                             : absl::StrCat("correct ", problem.key, ", or serve the reward")});
  }
  if (checks.empty()) {
    checks.push_back({"config", "reward.endpoints", Grade::kOk,
                      absl::StrCat(absl::StrJoin(reward.endpoints(), ", "), ": all answer"), ""});
  }
  return checks;
}

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

Checks CheckConfig(config::ResolvedConfig resolved, MachineNeeds& needs) {
  Checks checks;
  const v1::RunConfig& config = resolved.config;
  const auto add = [&](const config::Problem& problem) {
    checks.push_back({"config", problem.key,
                      problem.severity == config::Severity::kError ? Grade::kFail : Grade::kWarn,
                      config::ProblemLine(problem, resolved.provenance),
                      absl::StrCat("change ", problem.key, " (oxbow validate explains the run)")});
  };
  for (const config::Problem& problem : CheckRun(config)) add(problem);
  const auto facts = run::ReadModelFacts(config);
  if (!facts.ok()) return checks;  // The checks above report it.
  const Gpus gpus = GpusHere();
  Settle(*facts, RewardBytes(config.reward()), gpus, resolved);
  const std::vector<ProcessRow> rows = ProcessesOn(gpus, config, *facts);
  needs = NeedsOf(config, *facts, rows);
  if (const auto gpu = CheckGpuLoad(config, rows, gpus)) add(*gpu);
  if (checks.empty()) {
    checks.push_back({"config", "rules", Grade::kOk,
                      "read and checked as oxbow validate does: nothing wrong", ""});
  }
  checks.push_back({"config", "model", Grade::kOk,
                    absl::StrCat(config.model().path(), ", ", facts->transformer_parameters,
                                 " parameters, ", facts->trained_parameters, " trained"),
                    ""});
  const std::string& device = config.model().device();
  if (device.rfind("cuda", 0) == 0 && !at::hasCUDA()) {
    checks.push_back({"config", "device", Grade::kFail,
                      absl::StrCat(device, " is asked for and this LibTorch sees no CUDA device"),
                      "model.device: cpu, or a CUDA build on a machine with a driver"});
  }
  if (device.rfind("cuda", 0) == 0) {
    const std::string missing = model::MissingKernelsText(at::Device(at::kCUDA));
    checks.push_back({"config", "kernels", missing.empty() ? Grade::kOk : Grade::kWarn,
                      missing.empty() ? "fused ones are in this build" : missing,
                      missing.empty() ? "" : "make build-cuda, or docker/build.sh torch-cuda"});
  }
  return checks;
}

Check CheckRewards(const v1::RunConfig& config) {
  const auto rewards = CheckOwnRewards(config, "doctor");
  if (!rewards.ok()) {
    return {"config", "rewards", Grade::kFail, std::string(rewards.status().message()),
            "correct reward.scorers, or the file that it names"};
  }
  std::vector<std::string> names;
  for (const reward::RewardFacts& facts : *rewards) names.push_back(facts.identity);
  return {"config", "rewards", Grade::kOk,
          names.empty() ? "none of the run's own"
                        : absl::StrCat("loaded: ", absl::StrJoin(names, ", ")),
          ""};
}

Checks CheckCopies(const v1::RunConfig& config) {
  const std::filesystem::path run =
      std::filesystem::path(config.run().directory()) / config.run().name();
  const auto target = config::ParseCopyTarget(config.checkpoint().copy_to());
  const auto none = learner::CheckpointStore(run / "checkpoints", 1).empty();
  if (!target.ok() || !none.ok() || !*none) return {};
  const absl::Status refused = learner::CheckNoCopies(run, config.run().name(), *target);
  if (refused.ok()) return {};
  return {{"config", "checkpoint.copy_to", Grade::kFail, std::string(refused.message()),
           "put the copies back, or choose another run.name"}};
}

Checks CheckMachine(const std::string& directory, const std::vector<std::string>& ports,
                    const MachineNeeds& needs, absl::Duration certificate_left) {
  const std::vector<DiskShare> here = {{.key = "run.directory", .place = directory}};
  MachineFacts machine = LookAtMachine(needs.disks.empty() ? here : needs.disks, ports);
  machine.certificate_left = certificate_left;
  machine.cpu_capability = at::get_cpu_capability();
  machine.fast_blas = at::hasMKL() || at::show_config().find("BLAS_INFO=open") != std::string::npos;
  return JudgeMachine(machine, needs);
}

Checks CheckCheckpoints(const std::filesystem::path& run_dir) {
  const absl::Status lost = learner::CheckNotLost(run_dir);
  if (lost.ok()) return {};
  return {{"run", "checkpoints", Grade::kFail, std::string(lost.message()),
           "keep weights/ and put a copy of a checkpoint back"}};
}

Checks JudgeRun(const RunSummary& run) {
  const std::string state = run.state();
  const bool failed = state == run::WordOf(run::RunEnd::kFailed);
  const Grade verdict = failed ? Grade::kFail
                        : state == run::WordOf(run::RunEnd::kInterrupted) ||
                                state == run::WordOf(run::RunEnd::kRolledBack) ||
                                state == run::WordOf(run::RunEnd::kUnsaid)
                            ? Grade::kWarn
                            : Grade::kOk;
  Checks checks = {{"run", "state", verdict,
                    absl::StrCat(state, ", step ", run.step, "/", run.steps_total,
                                 failed ? absl::StrCat(": ", run.ended->reason) : ""),
                    verdict == Grade::kFail
                        ? "mend what its last words name (oxbow status), then oxbow resume"
                    : verdict == Grade::kWarn ? "steps are left: oxbow resume goes on"
                                              : ""}};
  const std::string uncopied = run.ended ? run::UncopiedOf(*run.ended) : "";
  if (!uncopied.empty()) {
    checks.push_back({"run", "copies", Grade::kWarn, uncopied, "docs/runbooks/copies_failing.md"});
  }
  if (const std::string unmeasured = FailedText(run); !unmeasured.empty()) {
    checks.push_back({"run", "evaluations", Grade::kWarn, unmeasured,
                      "the words are the reward's: correct it, or what it is asked"});
  }
  if (const std::string unscored = UnscoredText(run); !unscored.empty()) {
    checks.push_back({"run", "samples", Grade::kWarn, unscored,
                      "look at such pictures with oxbow score; docs/rewards.md, Failures"});
  }
  for (const io::VerdictLine& line : run.verdict) {
    // Nothing is broken where a run learns badly, so that is no failure.
    const Grade learns = line.level >= io::Level::kWatch ? Grade::kWarn : Grade::kOk;
    checks.push_back({"run", line.topic, learns, line.says, line.advice});
  }
  return checks;
}

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
