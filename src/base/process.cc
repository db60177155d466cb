// SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/check.h"
#include "base/file.h"

namespace oxbow {
namespace {

// This process's environment with `changes` in place of what they name, and without these names.
std::vector<std::string> MergedEnvironment(const std::vector<std::string>& changes,
                                           const std::vector<std::string>& without) {
  std::vector<std::string> merged = changes;
  for (char** line = environ; *line != nullptr; ++line) {
    const std::string inherited = *line;
    const std::string name = inherited.substr(0, inherited.find('=') + 1);
    bool changed =
        std::find(without.begin(), without.end(), name.substr(0, name.find('='))) != without.end();
    for (const std::string& change : changes) changed = changed || absl::StartsWith(change, name);
    if (!changed) merged.push_back(inherited);
  }
  return merged;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

void SetOutput(const SpawnOptions::Output& output, posix_spawn_file_actions_t* actions) {
  posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(actions, output.out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(actions, output.err, STDERR_FILENO);
}

// Returns the flags that make the attributes count.
short SetSignals(ChildSignals signals, posix_spawnattr_t* attributes) {
  if (signals == ChildSignals::kInherited) return 0;
  sigset_t blocked;
  sigemptyset(&blocked);
  sigset_t defaults;
  if (signals == ChildSignals::kDefault) {
    sigfillset(&defaults);
  } else {
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
  }
  posix_spawnattr_setsigmask(attributes, &blocked);
  posix_spawnattr_setsigdefault(attributes, &defaults);
  return POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
}

}  // namespace

absl::StatusOr<pid_t> Spawn(const SpawnOptions& options) {
  OXBOW_CHECK(!options.argv.empty()) << "a child needs a binary";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (options.output.has_value()) SetOutput(*options.output, &actions);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  int flags = SetSignals(options.signals, &attributes);
  if (options.own_group) {
    posix_spawnattr_setpgroup(&attributes, 0);
    flags |= POSIX_SPAWN_SETPGROUP;
  }
  posix_spawnattr_setflags(&attributes, static_cast<short>(flags));
  std::vector<std::string> argv = options.argv;
  std::vector<std::string> environment = MergedEnvironment(options.environment, options.without);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, options.binary.c_str(), &actions, &attributes,
                                Pointers(argv).data(), Pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error == EMFILE || error == ENFILE || error == EAGAIN || error == ENOMEM) {
    return absl::ResourceExhaustedError(std::strerror(error));
  }
  if (error != 0) return absl::UnavailableError(std::strerror(error));
  return pid;
}

bool ReapGroup(pid_t group) {
  while (true) {
    const pid_t pid = ::waitpid(-group, nullptr, WNOHANG);
    if (pid == 0) return true;
    if (pid < 0 && errno != EINTR) return false;
  }
}

absl::StatusOr<std::filesystem::path> ExecutablePath() {
  std::error_code error;
  std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return absl::UnavailableError(std::strerror(error.value()));
  return path;
}

uint64_t RaiseDescriptorLimit() {
  constexpr rlim_t kEnough = 1 << 20;  // Some systems have no hard limit; tables cost memory.
  rlimit limit{};
  OXBOW_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0) << "limit of descriptors";
  const rlim_t wanted = std::min(limit.rlim_max, kEnough);
  if (limit.rlim_cur >= wanted) return limit.rlim_cur;
  const rlimit raised{.rlim_cur = wanted, .rlim_max = limit.rlim_max};
  return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? wanted : limit.rlim_cur;
}

std::string ValueIn(const std::vector<std::string>& environment, const std::string& name) {
  const std::string start = name + "=";
  for (const std::string& line : environment) {
    if (line.starts_with(start)) return line.substr(start.size());
  }
  return "";
}

std::optional<std::string> FromEnvironment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::string MachineId() {
  constexpr uint64_t kIdBytesMax = 4096;
  const auto id = ReadFile("/proc/sys/kernel/random/boot_id", kIdBytesMax);
  return id.ok() ? std::string(absl::StripAsciiWhitespace(*id)) : "";
}

uint64_t RandomBits() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace oxbow
