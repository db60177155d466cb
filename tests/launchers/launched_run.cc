// SPDX-License-Identifier: Apache-2.0
#include "tests/launchers/launched_run.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace oxbow::testing {
namespace {

constexpr absl::Duration kReady = absl::Seconds(60);

std::string Text(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The rank that a launcher gave a process; -1 without one. Variables end with a zero byte.
int RankOf(pid_t pid) {
  const std::string environment =
      absl::StrCat(std::string(1, '\0'), Text(absl::StrCat("/proc/", pid, "/environ")));
  for (const char* name : {"RANK", "JOB_COMPLETION_INDEX", "SLURM_PROCID"}) {
    const std::string key = absl::StrCat(std::string(1, '\0'), name, "=");
    const size_t at = environment.find(key);
    if (at == std::string::npos) continue;
    int rank = 0;
    if (absl::SimpleAtoi(environment.c_str() + at + key.size(), &rank)) return rank;
  }
  return -1;
}

}  // namespace

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  OXBOW_CHECK(fd >= 0 && bind(fd, any, length) == 0 && getsockname(fd, any, &length) == 0)
      << "no free port";
  close(fd);
  return ntohs(address.sin_port);
}

LaunchedRun::LaunchedRun(std::vector<std::string> overrides)
    : listen_(absl::StrCat("127.0.0.1:", FreePort())) {
  std::filesystem::create_directories(files_.directory());
  const std::string source = OXBOW_SOURCE_DIR;
  std::vector<std::string> argv = {BinaryPath("oxbow"), "config", "show",
                                   source + "/configs/recipes/digits-op-grpo.yaml", "--resolved"};
  overrides.insert(overrides.begin(),
                   {"run.name=run", "run.directory=" + scratch_.path().string(),
                    "model.path=" + source + "/models/digits",
                    "prompts.train=" + source + "/configs/prompts/digits_train.txt",
                    "prompts.eval=" + source + "/configs/prompts/digits_eval.txt", "eval.every=0"});
  for (const std::string& override : overrides) {
    argv.push_back("--set");
    argv.push_back(override);
  }
  auto show = Process::Start({.argv = argv});
  OXBOW_CHECK(show.ok()) << show.status().ToString();
  OXBOW_CHECK((*show)->WaitExit(kReady).value() == 0) << (*show)->error_output();
  std::ofstream(files_.directory() / "config.resolved.yaml") << (*show)->output();
  buffer_ = absl::StrCat("127.0.0.1:", FreePort());
  StartBuffer();
  reward_process_ = Service({BinaryPath("reward_server")}, reward_);
}

void LaunchedRun::KillBuffer() {
  buffer_process_->Kill(SIGKILL);
  OXBOW_CHECK(buffer_process_->WaitExit(kReady).ok()) << "the replay buffer did not end";
}

void LaunchedRun::StartBuffer() {
  buffer_process_ = Service(
      {BinaryPath("replay_buffer"), "--data", (scratch_.path() / "replay").string(), "--config",
       (files_.directory() / "config.resolved.yaml").string(), "--listen", buffer_},
      buffer_);
}

std::unique_ptr<Process> LaunchedRun::Service(std::vector<std::string> argv,
                                              std::string& endpoint) {
  auto process = Process::Start({.argv = std::move(argv)});
  OXBOW_CHECK(process.ok()) << process.status().ToString();
  const auto ready = (*process)->WaitForLine("READY", kReady);
  OXBOW_CHECK(ready.ok()) << ready.status().ToString();
  endpoint = ValueOf(*ready, "grpc");
  return *std::move(process);
}

Process& LaunchedRun::Launch(Command command) {
  std::vector<std::string> words = std::move(command.launcher);
  words.insert(words.end(), {BinaryPath("learner"), "--config",
                             (files_.directory() / "config.resolved.yaml").string(), "--run-dir",
                             files_.directory().string(), "--buffer", buffer_, "--reward", reward_,
                             "--listen", command.any_port ? "127.0.0.1:0" : listen_, "--resume"});
  words.insert(words.end(), command.after.begin(), command.after.end());
  std::vector<std::string> environment = std::move(command.environment);
  environment.insert(environment.end(), {"OMP_NUM_THREADS=1", "OMP_WAIT_POLICY=PASSIVE"});
  auto process = Process::Start({.argv = std::move(words), .environment = std::move(environment)});
  OXBOW_CHECK(process.ok()) << process.status().ToString();
  launched_.push_back(*std::move(process));
  return *launched_.back();
}

void LaunchedRun::Work(Process& rank_zero) {
  const auto ready = rank_zero.WaitForLine("READY name=learner ", kReady);
  OXBOW_CHECK(ready.ok()) << ready.status().ToString();
  auto worker = Process::Start({.argv = {BinaryPath("rollout_worker"), "--learner", listen_}});
  OXBOW_CHECK(worker.ok()) << worker.status().ToString();
  worker_ = *std::move(worker);
}

std::vector<pid_t> LaunchedRun::LearnerProcesses() const {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    if (Text(entry.path() / "comm") == "learner\n" &&
        absl::StrContains(Text(entry.path() / "cmdline"), files_.directory().string())) {
      found.push_back(pid);
    }
  }
  return found;
}

bool LaunchedRun::KillRank(int rank, int signal) {
  for (const pid_t pid : LearnerProcesses()) {
    if (RankOf(pid) == rank) return kill(pid, signal) == 0;
  }
  return false;
}

bool LaunchedRun::WaitForStep(int64_t step) {
  return files_.WaitForStep(step, kLaunchDeadline, [this] { return launched_.front()->running(); });
}

std::vector<int> LaunchedRun::WaitExit() {
  std::vector<int> exits;
  for (const auto& process : launched_) {
    const auto exit = process->WaitExit(kLaunchDeadline);
    if (!exit.ok()) Clear();
    exits.push_back(exit.value_or(-1));
  }
  launched_.clear();
  return exits;
}

// Kills ranks that lost their launcher; they would keep its pipes open.
void LaunchedRun::Clear() {
  for (const auto& process : launched_) process->Kill(SIGKILL);
  for (const pid_t pid : LearnerProcesses()) kill(pid, SIGKILL);
}

LaunchedRun::~LaunchedRun() { Clear(); }

}  // namespace oxbow::testing
