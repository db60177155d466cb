#include "cli/run/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace oxbow::cli {
namespace {

// This process's environment with `changes` in place of what they name.
std::vector<std::string> MergedEnvironment(const std::vector<std::string>& changes) {
  std::vector<std::string> merged = changes;
  for (char** line = environ; *line != nullptr; ++line) {
    const std::string inherited = *line;
    const std::string name = inherited.substr(0, inherited.find('=') + 1);
    bool changed = false;
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

int Spawn(const std::string& path, char* const* argv, char* const* environment, int stdout_pipe,
          int log, pid_t* pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, stdout_pipe, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, log, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawn(pid, path.c_str(), &actions, &attributes, argv, environment);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

std::filesystem::path BinaryDirectory() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const Options& options) {
  OXBOW_CHECK(!options.argv.empty()) << "a child needs a binary";
  const int log = open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot write log: ", std::strerror(errno), ": ", options.log.string()));
  }
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
    close(log);
    return absl::UnavailableError(absl::StrCat("cannot make a pipe: ", std::strerror(errno)));
  }
  fcntl(pipe_ends[0], F_SETFL, O_NONBLOCK);
  std::vector<std::string> argv = {options.spawner.string(), absl::StrCat(getpid())};
  argv.insert(argv.end(), options.argv.begin(), options.argv.end());
  std::vector<std::string> environment = MergedEnvironment(options.environment);
  pid_t pid = 0;
  const int error = Spawn(options.spawner.string(), Pointers(argv).data(),
                          Pointers(environment).data(), pipe_ends[1], log, &pid);
  close(pipe_ends[1]);
  close(log);
  if (error != 0) {
    close(pipe_ends[0]);
    return absl::UnavailableError(
        absl::StrCat("cannot start (is the build complete?): ", std::strerror(error), ": ",
                     options.spawner.string()));
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, pipe_ends[0]));
}

ChildProcess::~ChildProcess() {
  if (!Exit()) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  close(stdout_);
}

std::vector<std::string> ChildProcess::TakeLines() {
  char buffer[4096];
  ssize_t count = 0;
  while ((count = read(stdout_, buffer, sizeof buffer)) > 0) partial_.append(buffer, count);
  std::vector<std::string> lines = absl::StrSplit(partial_, '\n');
  partial_ = lines.back();
  lines.pop_back();
  return lines;
}

std::optional<int> ChildProcess::Exit() {
  int state = 0;
  if (!exit_ && waitpid(pid_, &state, WNOHANG) == pid_) {
    exit_ = WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state);
  }
  return exit_;
}

void ChildProcess::Signal(int number) {
  if (!Exit()) kill(pid_, number);
}

std::optional<ReadyLine> ParseReady(const std::string& line) {
  if (!absl::StartsWith(line, "READY ")) return std::nullopt;
  ReadyLine ready;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(line, ' '))) {
    if (absl::StartsWith(word, "name=")) ready.name = word.substr(5);
    if (absl::StartsWith(word, "grpc=")) ready.grpc = word.substr(5);
    if (absl::StartsWith(word, "metrics=")) ready.metrics = word.substr(8);
  }
  return ready;
}

std::string LogTail(const std::filesystem::path& log, int lines) {
  std::ifstream file(log);
  std::vector<std::string> all;
  for (std::string line; std::getline(file, line);) all.push_back(line);
  const size_t first = all.size() > static_cast<size_t>(lines) ? all.size() - lines : 0;
  return absl::StrJoin(all.begin() + first, all.end(), "\n");
}

}  // namespace oxbow::cli
