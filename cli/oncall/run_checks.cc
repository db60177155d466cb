// SPDX-License-Identifier: Apache-2.0
#include "cli/oncall/run_checks.h"

#include <ATen/Context.h>
#include <ATen/Version.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/memory_limits.h"
#include "cli/oncall/machine_checks.h"
#include "cli/plan/check_files.h"
#include "cli/plan/machine_load.h"
#include "cli/plan/memory_check.h"
#include "cli/plan/resource_plan.h"
#include "cli/plan/reward_endpoints.h"
#include "cli/plan/reward_plan.h"
#include "config/copy_target.h"
#include "run/group_bytes.h"
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

Checks CheckRewardEndpoints(const v1::RunConfig& config) {
  const v1::RewardConfig& reward = config.reward();
  if (reward.endpoints().empty()) return {};
  Checks checks;
  for (const config::Problem& problem :
       EndpointProblems(reward, AskEndpoints(reward, kEndpointPatience))) {
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

}  // namespace oxbow::cli
