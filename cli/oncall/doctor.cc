#include "cli/oncall/doctor.h"

#include <ATen/Context.h>
#include <ATen/Version.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "cli/oncall/checkup.h"
#include "cli/oncall/fleet_facts.h"
#include "cli/oncall/machine_facts.h"
#include "cli/plan/check_files.h"
#include "cli/plan/run_plan.h"
#include "config/run_config.h"
#include "rpc/tls_flags.h"
#include "run/group_bytes.h"

namespace oxbow::cli {
namespace {

constexpr uint64_t kProcessBytes = uint64_t{200} << 20;  // Libraries and queues of a process.

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

// What the run of `config` needs on one machine, without activations.
MachineNeeds NeedsOf(const v1::RunConfig& config, const run::ModelFacts& facts) {
  MachineNeeds needs;
  const v1::ServiceConfig& services = config.services();
  const uint32_t rewards = config.reward().endpoints().empty() ? services.reward_servers() : 0;
  needs.busy_processes = config.learner().ranks() + services.rollout_workers();
  needs.processes = needs.busy_processes + rewards + 1;
  std::vector<MemoryItem> learner = LearnerMemory(config, facts);
  for (MemoryItem& item : learner) {
    // The sink's bound is what experience may take; what it will take is known.
    if (item.what == "experience, at most") {
      item.bytes = run::SinkBytesNeeded(config, facts.latent_shape);
    }
  }
  needs.memory = PeakOf(learner) * config.learner().ranks() +
                 PeakOf(WorkerMemory(config, facts)) * services.rollout_workers() +
                 kProcessBytes * needs.processes;
  needs.disk = DiskBytesNeeded(config, facts);
  return needs;
}

void JudgeConfig(const DoctorFlags& flags, Checks& checks, MachineNeeds& needs,
                 std::string& directory) {
  const auto resolved = config::LoadRunConfig(flags.file, flags.set, config::ProcessEnvironment());
  if (!resolved.ok()) {
    checks.push_back({"config", flags.file, Verdict::kFail,
                      std::string(resolved.status().message()), "correct the line"});
    return;
  }
  const v1::RunConfig& config = resolved->config;
  directory = config.run().directory();
  for (const config::Problem& problem : CheckRun(config)) {
    checks.push_back(
        {"config", problem.key,
         problem.severity == config::Severity::kError ? Verdict::kFail : Verdict::kWarn,
         config::ProblemLine(problem, resolved->provenance),
         absl::StrCat("change ", problem.key, " (oxbow validate explains the run)")});
  }
  const auto facts = run::ReadModelFacts(config);
  if (!facts.ok()) return;  // The checks above report it.
  needs = NeedsOf(config, *facts);
  if (checks.empty()) {
    checks.push_back({"config", "rules", Verdict::kOk,
                      "read and checked as oxbow validate does: nothing wrong", ""});
  }
  checks.push_back({"config", "model", Verdict::kOk,
                    absl::StrCat(config.model().path(), ", ", facts->transformer_parameters,
                                 " parameters, ", facts->trained_parameters, " trained"),
                    ""});
  const std::string& device = config.model().device();
  if (device.rfind("cuda", 0) == 0 && !at::hasCUDA()) {
    checks.push_back({"config", "device", Verdict::kFail,
                      absl::StrCat(device, " is asked for and this LibTorch sees no CUDA device"),
                      "model.device: cpu, or a CUDA build on a machine with a driver"});
  }
}

// If no fleet is named, asks nothing.
absl::StatusOr<FleetFacts> AskFleetOf(const DoctorFlags& flags) {
  const absl::Duration timeout = absl::Seconds(flags.timeout_s);
  if (!flags.learner.empty()) return AskFleet(flags.learner, timeout);
  if (!flags.run_dir.empty()) return AskFleetOfRun(flags.run_dir, timeout);
  return FleetFacts();
}

absl::Status Examine(const DoctorFlags& flags, int& exit_code) {
  OXBOW_ASSIGN_OR_RETURN(const absl::Time certificate_ends, rpc::UseTls(flags.tls));
  Checks checks;
  MachineNeeds needs;
  std::string directory = flags.run_dir.empty() ? "." : flags.run_dir;
  OXBOW_ASSIGN_OR_RETURN(const FleetFacts fleet, AskFleetOf(flags));
  if (!flags.file.empty()) JudgeConfig(flags, checks, needs, directory);
  needs.met = fleet.status.has_value();
  MachineFacts machine = LookAtMachine(directory, flags.ports);
  machine.certificate_left = certificate_ends - absl::Now();
  machine.cpu_capability = at::get_cpu_capability();
  machine.fast_blas = at::hasMKL() || at::show_config().find("BLAS_INFO=open") != std::string::npos;
  Checks all = JudgeMachine(machine, needs);
  all.insert(all.end(), checks.begin(), checks.end());
  for (Check& check : JudgeFleet(fleet)) all.push_back(std::move(check));
  std::cout << (flags.format == "json" ? CheckupJson(all) : CheckupText(all));
  exit_code = CheckupExitCode(all, flags.strict);
  return absl::OkStatus();
}

}  // namespace

void AddDoctor(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<DoctorFlags>();  // Lives as long as the callback below.
  CLI::App* command = app.add_subcommand(
      "doctor", "Say what is wrong with this machine, a configuration or a running fleet");
  command->footer(
      "One line per check: ok, warn or fail, and what to do. Exit code: 0 nothing failed, 1 "
      "something\ndid (with --strict: or warns), 4 --run-dir is no run.\n"
      "Examples: oxbow doctor configs/digits.yaml\n"
      "          oxbow doctor --run-dir runs/digits\n"
      "          oxbow doctor --learner 10.0.0.7:7001 --format json");
  command->add_option("file", flags->file, "run YAML that is to run here");
  command->add_option("--set", flags->set, "KEY=VALUE over everything else; may be repeated")
      ->allow_extra_args(false);
  auto* learner = command->add_option("--learner", flags->learner, "host:port of a live learner");
  command->add_option("--run-dir,--run", flags->run_dir, "directory of a live run")
      ->excludes(learner);
  command->add_option("--port", flags->ports, "host:port that must be free; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--timeout", flags->timeout_s, "timeout of one call to a process, in seconds")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--format", flags->format)
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  command->add_flag("--strict", flags->strict, "warnings count as failures");
  rpc::AddTlsFlags(*command, flags->tls);
  command->callback([flags, &exit_code] {
    const absl::Status status = Examine(*flags, exit_code);
    if (status.ok()) return;
    std::cerr << "oxbow doctor: " << status.message() << "\n";
    exit_code = ExitCodeOf(status);
  });
}

}  // namespace oxbow::cli
