// SPDX-License-Identifier: Apache-2.0
#include "cli/run/rollback.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iostream>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/report/run_summary.h"
#include "cli/run/status.h"
#include "cli/run_option.h"
#include "cli/terminal.h"
#include "config/run_config.h"
#include "rpc/tls_flags.h"
#include "run/endpoints_file.h"
#include "run/run_lock.h"
#include "run/run_record.h"
#include "services/learner/checkpoint/checkpoint_store.h"

namespace oxbow::cli {

namespace {

constexpr char kConsent[] = "; if it has ended: --force";

// A zombie (exited, but not waited for) counts as ended.
bool IsAlive(pid_t pid) {
  if (pid <= 0 || (kill(pid, 0) != 0 && errno != EPERM)) return false;
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));  // "12 (name) S ..."
  std::string stat;
  std::getline(file, stat);
  const size_t name_end = stat.rfind(") ");
  return name_end == std::string::npos || (stat[name_end + 2] != 'Z' && stat[name_end + 2] != 'X');
}

// Whether connections to all addresses of `endpoint` are refused. A machine that does not answer
// refuses nothing.
bool Refuses(const std::string& endpoint, absl::Duration timeout) {
  const size_t colon = endpoint.rfind(':');
  if (colon == std::string::npos) return false;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(endpoint.substr(0, colon).c_str(), endpoint.substr(colon + 1).c_str(), &hints,
                  &found) != 0) {
    return false;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  const timeval limit = absl::ToTimeval(timeout);
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    const int peer = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (peer < 0) return false;
    setsockopt(peer, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    const bool refused =
        connect(peer, address->ai_addr, address->ai_addrlen) != 0 && errno == ECONNREFUSED;
    close(peer);
    if (!refused) return false;
  }
  return true;
}

absl::Status CheckNobodyAt(const std::string& learner, absl::Duration timeout) {
  if (Refuses(learner, timeout)) return absl::OkStatus();
  const auto status = AskStatus(learner, timeout);
  if (status.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("the run is live, stop it first: learner at ",
                                                      learner, ", step ", status->learner_step()));
  }
  if (IsRefusal(status.status())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the run may be live: ", std::string(NoStatus(status.status(), learner).message()),
        kConsent));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the run may be live: its learner's address takes connections and does not "
                   "answer",
                   kConsent, ": ", learner, ": ", std::string(status.status().message())));
}

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
  AddTimeout(*command, flags->timeout_s, "timeout of a call to the learner, in seconds");
  rpc::AddTlsFlags(*command, flags->tls);
  command->callback([flags, &exit_code] { exit_code = Ended("rollback", RollBack(*flags)); });
}

absl::Status CheckEnded(const std::filesystem::path& run_dir, const std::string& learner,
                        absl::Duration timeout) {
  if (!learner.empty()) return CheckNobodyAt(learner, timeout);
  const auto services = run::ReadEndpoints(run_dir);
  const auto starter = run::ReadStarter(run_dir);
  if (!services.ok() || !starter.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no endpoints.json says where the run's learner is: give --learner HOST:PORT",
                     kConsent, ": ", run_dir.string()));
  }
  if (!starter->host.empty() && starter->host != HostName()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the run was started on another machine and may be live there", kConsent, ": ",
                     starter->host));
  }
  if (IsAlive(starter->pid)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the run is live, stop it first: it was started by process ", starter->pid,
                     " (if that is something else, and the run has ended: --force)"));
  }
  for (const run::ServiceEndpoint& service : *services) {
    if (service.name != "learner" || service.grpc.empty()) continue;
    OXBOW_RETURN_IF_ERROR(CheckNobodyAt(service.grpc, timeout));
  }
  return absl::OkStatus();
}

}  // namespace oxbow::cli
