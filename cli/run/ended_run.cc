// SPDX-License-Identifier: Apache-2.0
#include "cli/run/ended_run.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "cli/run/status.h"
#include "run/endpoints_file.h"

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

}  // namespace

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
