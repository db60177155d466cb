// SPDX-License-Identifier: Apache-2.0
// The processes of one run on this machine: starts them with their arguments and executes the
// supervisor's actions.
//
// Buffer and reward servers start first, the learner when they are ready, and the workers when the
// learner is ready. A child keeps the ports of its first READY line across restarts, so that its
// peers find it again.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "cli/run/child_process.h"
#include "cli/run/supervisor.h"
#include "config/device_plan.h"
#include "oxbow/v1/config.pb.h"
#include "rpc/tls.h"
#include "run/endpoints_file.h"
#include "run/run_lock.h"

namespace oxbow::cli {

// Where workers of other machines find a run: `oxbow train --listen HOST:PORT`.
//
//   PORT            learner
//   PORT + 1        replay buffer, or its first shard
//   PORT + 2 + i    reward server i
//
// Metrics, further shards and the workers that `oxbow train` starts take any port.
struct JoinAddress {
  std::string host;  // With the brackets of an IPv6 address.
  int port = 0;      // 0: any.
};

// kInvalidArgument if the text is not HOST:PORT, or if HOST is an address at which nobody can be
// found, such as 0.0.0.0: workers are told it.
absl::StatusOr<JoinAddress> ParseJoinAddress(const std::string& text);

// The port of process `number` of a role; 0 means any.
int PortOf(const JoinAddress& address, FleetRole role, int number);

// Finds the numeric addresses of a host's name on this machine; none for a name that is not known.
using NameLookup = std::vector<std::string> (*)(const std::string& host);
std::vector<std::string> AddressesOf(const std::string& host);

// Why workers of other machines would not find `host`, a name that means this machine alone here,
// as the installers of some systems write it into /etc/hosts; empty if they may.
std::string LoopbackWarning(const std::string& host, NameLookup addresses_of = AddressesOf);

// "workers may join: rollout_worker --learner 192.0.2.2:7070".
std::string JoinLine(const std::string& learner, bool tls);

// The processes that `oxbow train` starts, by name.
std::map<std::string, FleetRole> RolesByName(const v1::RunConfig& config);

// Whether they can listen at services.host, and at the ports of `join`: tried before anything is
// loaded. kUnavailable names the process and the port that is taken.
absl::Status CheckPorts(const v1::RunConfig& config, const JoinAddress& join);

class Fleet {
 public:
  struct Options {
    std::filesystem::path binaries;
    std::filesystem::path run_dir;  // Holds config.resolved.yaml.
    v1::RunConfig config;
    JoinAddress join;  // Its host is config.services.host.
    int gpus = 0;      // This machine's.
    bool resume = false;
    bool accept_reward_change = false;
    rpc::TlsOptions tls;  // For the children; this process uses it already.
  };
  // `lock` is that of the run's directory, and outlives it.
  Fleet(Options options, const run::RunLock& lock, const Clock& clock);

  // Starts children that may start, reads their output, detects deaths, and restarts. Never blocks.
  void Poll();
  // Reports a stop signal that this process received.
  void Stop(int signal);

  const Supervisor& supervisor() const { return supervisor_; }
  // host:port of the learner's Coordinator; empty until it is ready.
  std::string learner() const;
  std::filesystem::path LogOf(const std::string& child) const;
  // The last lines of that log, of the child's present or last life.
  std::string LogTailOf(const std::string& child, int lines) const;
  // The child's last words in its present or last life.
  std::string LastWordsOf(const std::string& child) const;
  void Committed(uint64_t steps) { supervisor_.Committed(steps); }

 private:
  struct Member {
    FleetRole role;
    std::unique_ptr<ChildProcess> process;
    bool ready = false;
    std::uintmax_t log_begin = 0;  // Where the log of this life begins,
    bool log_moved = false;        // and whether it has gone on in a new file since.
    std::string trouble;           // Why it does not live, and when it starts again.
    std::string grpc;              // From the first READY line.
    std::string metrics;
    // Processes that the child started and announced on its stdout: learner ranks.
    std::map<std::string, run::ServiceEndpoint> others;
  };

  void StartWaiting();
  void Start(const std::string& name, bool resume);
  void Apply(const std::vector<Supervisor::Action>& actions);
  void ReadLines(const std::string& name, Member& member);
  std::vector<std::string> Arguments(const std::string& name, const Member& member,
                                     bool resume) const;
  std::vector<std::string> EndpointsOf(FleetRole role) const;
  bool AllReady(FleetRole role) const;
  void Publish();
  void CannotYet(const absl::Status& why);
  void Abort(const absl::Status& why);
  void SayTrouble(const std::string& name, Member& member);
  void BoundLogs();

  const Options options_;
  const config::DevicePlan devices_;
  const run::RunLock& lock_;
  const Clock& clock_;
  Supervisor supervisor_;
  absl::Duration logs_due_;  // When the sizes of the logs are looked at.
  std::string stopped_by_;   // The signal that ends the run.
  std::map<std::string, Member> members_;
  bool published_ = false;  // endpoints.json is that of this start.
  bool owes_publication_ = false;
  bool said_cannot_ = false;  // That something is not possible yet; until a start succeeds.
};

}  // namespace oxbow::cli
