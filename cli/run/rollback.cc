// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/report/run_summary.h"
#include "cli/run/ended_run.h"
#include "cli/run_option.h"
#include "config/run_config.h"
#include "rpc/tls_flags.h"
#include "run/end_record.h"
#include "run/run_lock.h"
#include "run/start_record.h"
#include "services/learner/checkpoint/checkpoint_store.h"

namespace oxbow::cli {
namespace {

struct RollbackFlags {
  std::string run_dir;
  std::string to;
  std::string learner;
  bool force = false;
  double timeout_s = 5;
  rpc::TlsOptions tls;
};

absl::Status RollBack(const RollbackFlags& flags) {
  const std::filesystem::path run_dir = flags.run_dir;
  OXBOW_RETURN_IF_ERROR(rpc::UseTls(TlsOfRun(flags.tls, flags.run_dir)).status());
  OXBOW_RETURN_IF_ERROR(FindRun(run_dir));
  if (!std::filesystem::is_directory(run_dir / "checkpoints")) {
    return absl::NotFoundError(absl::StrCat("no checkpoints in ", run_dir.string()));
  }
  // A lock that is held is certain, so --force does not pass over it.
  OXBOW_ASSIGN_OR_RETURN(const run::RunLock lock,
                         run::RunLock::Take(run_dir, {.program = "oxbow rollback"}));
  OXBOW_ASSIGN_OR_RETURN(const run::RunLock learner_lock,
                         run::RunLock::Take(run_dir, {.part = run::RunLock::Part::kLearner,
                                                      .program = "oxbow rollback"}));
  if (!flags.force) {
    OXBOW_RETURN_IF_ERROR(CheckEnded(run_dir, flags.learner, absl::Seconds(flags.timeout_s)));
  }
  const learner::CheckpointStore store(run_dir / "checkpoints", 1);
  std::string best;  // A run that no `oxbow train` started may have no such file.
  if (const auto config = config::LoadResolved(run_dir / "config.resolved.yaml"); config.ok()) {
    best = config->checkpoint().best();
  }
  OXBOW_ASSIGN_OR_RETURN(const learner::Checkpoint wanted, store.LoadNamed(flags.to, best));
  OXBOW_ASSIGN_OR_RETURN(const learner::RunState state,
                         store.RollBack(wanted.state.committed_steps));
  OXBOW_RETURN_IF_ERROR(
      run::WriteEnd(run_dir, {.end = run::RunEnd::kRolledBack,
                              .step = state.committed_steps,
                              .reason = "newer checkpoints are kept as rolled_back_*",
                              .time = absl::Now()}));
  const std::vector<run::StartRecord> starts = run::ReadStarts(run_dir);
  std::cout << "the run is at step " << state.committed_steps << ", policy version "
            << state.policy_version << "; go on with: "
            << run::CommandToGoOn(starts.empty() ? "" : starts.back().command, run_dir) << "\n";
  if (state.buffer_checkpoint.empty()) {
    std::cout
        << "the checkpoint names none of the replay buffer: it will keep what was born before "
           "that step\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddRollback(CLI::App& app, int& exit_code) {
  CLI::App* const command =
      app.add_subcommand("rollback", "Return a run that has ended to an earlier checkpoint");
  command->footer(
      "Refuses while the run lives, or where that cannot be known.\n"
      "Example: oxbow rollback runs/digits --to 50");
  const auto flags = std::make_shared<RollbackFlags>();
  AddRunDirectory(*command, flags->run_dir)->required();
  command->add_option("--to", flags->to, "Learner step of a checkpoint, or best")->required();
  command->add_option("--addr,--learner", flags->learner,
                      "host:port of the learner, of a run that `oxbow train` did not start");
  command->add_flag("--force", flags->force,
                    "Treat the run as ended, even if that cannot be known");
  command->add_option("--timeout", flags->timeout_s, "timeout of a call to the learner, in seconds")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  rpc::AddTlsFlags(*command, flags->tls);
  command->callback([flags, &exit_code] {
    const absl::Status status = RollBack(*flags);
    exit_code = ExitCodeOf(status);
    if (!status.ok()) std::cerr << "oxbow rollback: " << status.message() << "\n";
  });
}

}  // namespace oxbow::cli
