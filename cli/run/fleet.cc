// SPDX-License-Identifier: Apache-2.0
#include "cli/run/fleet.h"

#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "base/listening_sockets.h"
#include "base/log.h"
#include "base/memory_limits.h"
#include "base/patience.h"
#include "base/status_macros.h"
#include "config/memory_parts.h"
#include "config/validate.h"
#include "core/parallel/rank_variables.h"
#include "oxbow/v1/coordinator.grpc.pb.h"
#include "rpc/certificate_files.h"
#include "rpc/channel.h"
#include "rpc/stop_signal.h"
#include "rpc/tls_flags.h"
#include "run/rewards.h"

namespace oxbow::cli {

namespace {

constexpr int kPortMax = 65000;  // Reward servers take the ports behind it.

constexpr absl::Duration kDrainCall = absl::Seconds(5);
constexpr absl::Duration kLogsEvery = absl::Seconds(10);

// "rollout_worker-3" -> 3.
uint32_t NumberOf(const std::string& name) {
  uint32_t number = 0;
  return absl::SimpleAtoi(name.substr(name.rfind('-') + 1), &number) ? number : 0;
}

const char* BinaryOf(FleetRole role) {
  static constexpr const char* kNames[] = {"replay_buffer", "reward_server", "learner",
                                           "rollout_worker"};
  return kNames[static_cast<int>(role)];
}

// One thread per process: more threads were slower for CPU runs, and spinning OpenMP threads slow
// down the other processes.
std::vector<std::string> ChildEnvironment(const rpc::TlsOptions& tls, const v1::RunConfig& config,
                                          FleetRole role) {
  std::vector<std::string> environment = rpc::ConnectionEnvironment(tls);
  // With this poll interval idle gRPC clients notice a closing server at once instead of after 5 s.
  environment.insert(environment.end(),
                     {"OMP_NUM_THREADS=1", "OMP_WAIT_POLICY=PASSIVE", "MKL_NUM_THREADS=1",
                      "GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS=200", "MALLOC_ARENA_MAX=2"});
  const uint64_t ranks = config.learner().ranks();
  environment.push_back(
      MemoryFor(role == FleetRole::kLearner ? ranks : 1, RolesByName(config).size() - 1 + ranks));
  return environment;
}

// Where a process listens in its first life.
std::string FirstEndpoint(const v1::RunConfig& config, const JoinAddress& join,
                          const std::string& name, FleetRole role) {
  return absl::StrCat(config.services().host(), ":",
                      PortOf(join, role, static_cast<int>(NumberOf(name))));
}

// Whether key and certificate are those of a whole fleet at this moment: a renewal may be under
// way, and a process that was started now would end for it.
absl::Status CheckFiles(const rpc::TlsOptions& tls) {
  if (tls.files.cert.empty()) return absl::OkStatus();
  return rpc::CheckCertificateFiles(tls.files, tls.name, absl::Now()).status();
}

bool Drain(const std::string& learner, const std::string& signal) {
  v1::DrainRequest request;
  request.set_reason(absl::StrCat(signal, " to oxbow train"));
  v1::DrainResponse response;
  return v1::Coordinator::NewStub(rpc::Connect(learner))
      ->Drain(rpc::ContextWithDeadline(kDrainCall).get(), request, &response)
      .ok();
}

}  // namespace

absl::StatusOr<JoinAddress> ParseJoinAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  JoinAddress address;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(text.substr(colon + 1), &address.port) || address.port < 1 ||
      address.port > kPortMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen takes HOST:PORT, with a port from 1 to ", kPortMax, ": ", text));
  }
  address.host = text.substr(0, colon);
  if (address.host == "0.0.0.0" || address.host == "[::]" || address.host == "*") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen takes this machine's own address, which workers are told, not ", text));
  }
  return address;
}

int PortOf(const JoinAddress& address, FleetRole role, int number) {
  if (address.port == 0) return 0;
  if (role == FleetRole::kLearner) return address.port;
  if (role == FleetRole::kReward) return address.port + 2 + number;
  return role == FleetRole::kBuffer && number == 0 ? address.port + 1 : 0;
}

std::vector<std::string> AddressesOf(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return {};
  std::vector<std::string> addresses;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    char text[NI_MAXHOST] = {};
    if (getnameinfo(info->ai_addr, info->ai_addrlen, text, sizeof text, nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      addresses.push_back(text);
    }
  }
  freeaddrinfo(found);
  return addresses;
}

std::string LoopbackWarning(const std::string& host, NameLookup addresses_of) {
  const auto is_loopback = [](const std::string& address) {
    return rpc::IsLoopback(WithBrackets(absl::StrCat(address, ":0")));
  };
  if (is_loopback(host)) return "";  // As it was asked for.
  const std::vector<std::string> addresses = addresses_of(host);
  if (addresses.empty() || !std::all_of(addresses.begin(), addresses.end(), is_loopback)) return "";
  return absl::StrCat(host, " is ", addresses.front(),
                      " on this machine (/etc/hosts), where no other machine finds it; give "
                      "--listen an address of this machine (ip -brief address)");
}

std::string JoinLine(const std::string& learner, bool tls) {
  return absl::StrCat(
      "workers may join: rollout_worker --learner ", learner,
      tls ? " --tls-ca CA --tls-cert CERT --tls-key KEY (a worker's certificate)" : "");
}

std::map<std::string, FleetRole> RolesByName(const v1::RunConfig& config) {
  std::map<std::string, FleetRole> processes = {{"learner", FleetRole::kLearner}};
  const uint32_t shards = config::ReplayBuffersOf(config);
  for (uint32_t i = 0; i < shards; ++i) {
    // Two digits: names sort as shards do.
    processes[shards == 1 ? "replay_buffer" : absl::StrFormat("replay_buffer-%02d", i)] =
        FleetRole::kBuffer;
  }
  for (uint32_t i = 0; i < run::RewardServersOf(config); ++i) {
    processes[absl::StrCat("reward_server-", i)] = FleetRole::kReward;
  }
  for (uint32_t i = 0; i < config.services().rollout_workers(); ++i) {
    processes[absl::StrCat("rollout_worker-", i)] = FleetRole::kWorker;
  }
  return processes;
}

absl::Status CheckPorts(const v1::RunConfig& config, const JoinAddress& join) {
  for (const auto& [name, role] : RolesByName(config)) {
    const absl::Status listens = Listen(FirstEndpoint(config, join, name, role)).status();
    if (!listens.ok()) return Annotate(listens, name);
  }
  return absl::OkStatus();
}

Fleet::Fleet(Options options, const run::RunLock& lock, const Clock& clock)
    : options_(std::move(options)),
      devices_(config::PlanDevices(options_.config, options_.gpus)),
      lock_(lock),
      clock_(clock),
      supervisor_({.patience = absl::Minutes(options_.config.services().patience_minutes())},
                  clock) {
  for (const auto& [name, role] : RolesByName(options_.config)) members_[name] = {.role = role};
}

std::filesystem::path Fleet::LogOf(const std::string& child) const {
  return options_.run_dir / "logs" / (child + ".log");
}

std::string Fleet::LogTailOf(const std::string& child, int lines) const {
  const Member& member = members_.at(child);
  const std::string tail = LogTail(LogOf(child), lines, member.log_begin);
  return tail.empty() && member.log_moved ? LogTail(FormerLog(LogOf(child)), lines) : tail;
}

std::string Fleet::LastWordsOf(const std::string& child) const {
  const Member& member = members_.at(child);
  const std::string words = LastWords(LogOf(child), member.log_begin, BinaryOf(member.role));
  if (!words.empty() || !member.log_moved) return words;
  return LastWords(FormerLog(LogOf(child)), 0, BinaryOf(member.role));
}

std::string Fleet::learner() const {
  const Member& member = members_.at("learner");
  return member.ready ? member.grpc : "";
}

bool Fleet::AllReady(FleetRole role) const {
  for (const auto& [name, member] : members_) {
    if (member.role == role && member.grpc.empty()) return false;
  }
  return true;
}

std::vector<std::string> Fleet::EndpointsOf(FleetRole role) const {
  std::vector<std::string> endpoints;
  for (const auto& [name, member] : members_) {
    if (member.role == role) endpoints.push_back(member.grpc);
  }
  return endpoints;
}

std::vector<std::string> Fleet::Arguments(const std::string& name, const Member& member,
                                          bool resume) const {
  const v1::RunConfig& config = options_.config;
  const std::string any = absl::StrCat(config.services().host(), ":0");
  const std::string first = FirstEndpoint(config, options_.join, name, member.role);
  const std::string resolved = (options_.run_dir / "config.resolved.yaml").string();
  std::vector<std::string> argv = {(options_.binaries / BinaryOf(member.role)).string()};
  const auto add = [&argv](std::vector<std::string> more) {
    argv.insert(argv.end(), more.begin(), more.end());
  };
  add({"--listen", member.grpc.empty() ? first : member.grpc});
  add({"--metrics-listen", member.metrics.empty() ? any : member.metrics});
  add({"--log-level", config.services().log_level(), "--log-format",
       config.services().log_format()});
  switch (member.role) {
    case FleetRole::kBuffer:
      add({"--data",
           run::ReplayDirectories(options_.run_dir,
                                  config.services().replay_shards())[NumberOf(name)]
               .string(),
           "--config", resolved});
      break;
    case FleetRole::kReward:
      add({"--config", resolved, "--rewards", absl::StrJoin(run::OwnRewards(config.reward()), ","),
           "--gpu-slot", absl::StrCat(devices_.rewards[NumberOf(name)])});
      break;
    case FleetRole::kLearner: {
      std::vector<std::string> rewards(config.reward().endpoints().begin(),
                                       config.reward().endpoints().end());
      for (const std::string& own : EndpointsOf(FleetRole::kReward)) rewards.push_back(own);
      add({"--config", resolved, "--run-dir", options_.run_dir.string(), "--reward",
           absl::StrJoin(rewards, ","), "--supervised"});
      const std::string buffers = absl::StrJoin(EndpointsOf(FleetRole::kBuffer), ",");
      if (!buffers.empty()) add({"--buffer", buffers});
      if (resume) add({"--resume"});
      if (options_.accept_reward_change) add({"--accept-reward-change"});
      break;
    }
    case FleetRole::kWorker:
      add({"--learner", members_.at("learner").grpc, "--id", name, "--device",
           config.model().device(), "--gpu-slot", absl::StrCat(devices_.workers[NumberOf(name)]),
           "--give-up-after", "0"});
      if (config::MemoryOf(config.model()).offload_weights) add({"--offload-weights"});
      if (config::LendsBase(config.model())) {
        add({"--lent-base", (options_.run_dir / config::kLentFolder).string()});
      }
      break;
  }
  return argv;
}

// A lack of descriptors passes, so do a disk that is away and a renewal of certificates.
void Fleet::CannotYet(const absl::Status& why) {
  if (!std::exchange(said_cannot_, true)) {
    OXBOW_LOG(Warning) << "not possible yet, tried again" << Field("why", why.message());
  }
}

void Fleet::Abort(const absl::Status& why) {
  Apply(supervisor_.Abort(ExitCodeOf(why), std::string(why.message())));
}

void Fleet::Start(const std::string& name, bool resume) {
  const absl::Status held = lock_.CheckHeld();
  if (MayPass(held)) {
    CannotYet(held);
    return supervisor_.StartFailed(name);
  }
  if (!held.ok()) return Abort(held);
  if (const absl::Status fit = CheckFiles(options_.tls); !fit.ok()) {
    CannotYet(fit);
    return supervisor_.StartFailed(name);
  }
  Member& member = members_.at(name);
  std::error_code no_log;
  member.log_moved = false;
  member.trouble.clear();
  member.log_begin = std::filesystem::file_size(LogOf(name), no_log);
  if (no_log) member.log_begin = 0;
  auto process = ChildProcess::Start(
      {.spawner = options_.binaries / "oxbow_spawn",
       .argv = Arguments(name, member, resume || options_.resume),
       .environment = ChildEnvironment(options_.tls, options_.config, member.role),
       // The learner starts its ranks itself.
       .without = parallel::RankVariables(),
       .log = LogOf(name)});
  if (absl::IsResourceExhausted(process.status())) {
    CannotYet(process.status());
    return supervisor_.StartFailed(name);
  }
  if (!process.ok()) return Abort(process.status());
  said_cannot_ = false;
  member.others.clear();
  member.process = *std::move(process);
  supervisor_.Started(name, member.role);
}

void Fleet::StartWaiting() {
  if (supervisor_.phase() != Supervisor::Phase::kRunning) return;
  const bool services = AllReady(FleetRole::kBuffer) && AllReady(FleetRole::kReward);
  const bool learner = AllReady(FleetRole::kLearner);
  for (const auto& [name, member] : members_) {
    if (member.process != nullptr) continue;
    if (member.role == FleetRole::kLearner && !services) continue;
    if (member.role == FleetRole::kWorker && !learner) continue;
    Start(name, options_.resume);
    if (supervisor_.phase() != Supervisor::Phase::kRunning) return;
  }
}

void Fleet::ReadLines(const std::string& name, Member& member) {
  for (const std::string& line : member.process->TakeLines()) {
    const auto ready = ParseReady(line);
    if (!ready) continue;
    if (ready->name != BinaryOf(member.role)) {
      member.others[ready->name] = {ready->name, ready->grpc, ready->metrics};
      Publish();
      continue;
    }
    member.ready = true;
    if (member.grpc.empty()) member.grpc = ready->grpc;
    if (member.metrics.empty()) member.metrics = ready->metrics;
    supervisor_.Ready(name);
    Publish();
  }
}

void Fleet::Poll() {
  StartWaiting();
  if (owes_publication_) Publish();
  for (auto& [name, member] : members_) {
    if (member.process == nullptr) continue;
    ReadLines(name, member);
    const auto exit = member.process->Exit();
    if (!exit) continue;
    // A dead child is kept until its restart, because StartWaiting would start a null process.
    if (!supervisor_.alive(name)) continue;
    member.ready = false;
    Apply(supervisor_.Exited(name, *exit));
    if (supervisor_.phase() == Supervisor::Phase::kRunning && *exit != kExitOk) {
      SayTrouble(name, member);
    }
  }
  Apply(supervisor_.Tick());
  BoundLogs();
}

// On the terminal, and in endpoints.json for `oxbow status`.
void Fleet::SayTrouble(const std::string& name, Member& member) {
  const absl::Duration pause = absl::Trunc(supervisor_.Pause(name), absl::Milliseconds(100));
  const std::string said = LastWordsOf(name);
  const std::string why = absl::StrCat(supervisor_.TroubleOf(name), said.empty() ? "" : ": ", said);
  OXBOW_LOG(Warning) << "child ended and is started again" << Field("child", name)
                     << Field("why", why) << Field("in", pause);
  member.trouble =
      absl::StrCat(supervisor_.TroubleOf(name), "; starts again at ",
                   absl::FormatTime("%H:%M:%S", absl::Now() + pause, absl::UTCTimeZone()), " UTC",
                   said.empty() ? "" : ": ", said);
  Publish();
}

void Fleet::BoundLogs() {
  if (clock_.Now() < logs_due_) return;
  logs_due_ = clock_.Now() + kLogsEvery;
  for (auto& [name, member] : members_) {
    if (!MoveIfLarge(LogOf(name))) continue;
    member.log_begin = 0;
    member.log_moved = true;
  }
}

void Fleet::Stop(int signal) {
  if (stopped_by_.empty()) stopped_by_ = rpc::NameOfSignal(signal);
  Apply(supervisor_.StopRequested(signal));
}

void Fleet::Apply(const std::vector<Supervisor::Action>& actions) {
  for (const Supervisor::Action& action : actions) {
    switch (action.what) {
      case Supervisor::Do::kStart:
        Start(action.child, action.resume);
        break;
      case Supervisor::Do::kDrain:
        if (!Drain(members_.at(action.child).grpc, stopped_by_)) Apply(supervisor_.DrainFailed());
        break;
      case Supervisor::Do::kTerminate:
        members_.at(action.child).process->Signal(SIGTERM);
        break;
      case Supervisor::Do::kKill:
        members_.at(action.child).process->Signal(SIGKILL);
        break;
    }
  }
}

// Not before the run has come up: until then the file of the start before is left as it is.
void Fleet::Publish() {
  const bool up =
      AllReady(FleetRole::kBuffer) && AllReady(FleetRole::kReward) && AllReady(FleetRole::kLearner);
  if (!published_ && !up) return;
  const absl::Status held = lock_.CheckHeld();
  owes_publication_ = MayPass(held);
  if (owes_publication_) return CannotYet(held);
  if (!held.ok()) return Abort(held);
  published_ = true;
  std::vector<run::ServiceEndpoint> endpoints;
  for (const auto& [name, member] : members_) {
    if (member.process == nullptr) continue;
    endpoints.push_back({name, member.grpc, member.metrics, member.process->pid(), member.trouble});
    for (const auto& [other, endpoint] : member.others) endpoints.push_back(endpoint);
  }
  const rpc::TlsOptions& tls = options_.tls;
  const absl::Status status =
      run::WriteEndpoints(options_.run_dir, endpoints,
                          {tls.files.ca, tls.files.cert, tls.files.key, tls.name, tls.roles});
  owes_publication_ = MayPass(status);
  if (owes_publication_) return CannotYet(status);
  if (!status.ok()) {
    OXBOW_LOG(Warning) << "cannot write endpoints.json" << Field("why", status.message());
  }
}

}  // namespace oxbow::cli
