// SPDX-License-Identifier: Apache-2.0
#include "cli/run/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/process.h"

namespace oxbow::cli {

namespace {

constexpr std::uintmax_t kTailBytes = std::uintmax_t{256} << 10;

// The last lines from `begin` on; the first may have lost its beginning.
std::vector<std::string> Tail(const std::filesystem::path& log, std::uintmax_t begin) {
  std::error_code none;
  const std::uintmax_t size = std::filesystem::file_size(log, none);
  if (none || size <= begin) return {};
  std::ifstream file(log);
  file.seekg(static_cast<std::streamoff>(std::max(begin, size - std::min(size, kTailBytes))));
  std::string text(std::istreambuf_iterator<char>(file), {});
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

// A line of base/log.h of one of these levels: letters in text, names in JSON.
bool IsEvent(const std::string& line, std::initializer_list<std::pair<char, const char*>> levels) {
  return std::any_of(levels.begin(), levels.end(), [&](const auto& level) {
    return absl::StartsWith(line, std::string(1, level.first) + " ") ||
           absl::StrContains(line, absl::StrCat("\"level\":\"", level.second, "\""));
  });
}

// Descriptors come back.
absl::Status CannotStart(int error, const std::string& why) {
  return error == EMFILE || error == ENFILE ? absl::ResourceExhaustedError(why)
                                            : absl::UnavailableError(why);
}

}  // namespace

std::filesystem::path FormerLog(const std::filesystem::path& log) {
  return std::filesystem::path(log) += ".1";
}

bool MoveIfLarge(const std::filesystem::path& log, std::uintmax_t bytes_max) {
  std::error_code error;
  if (std::filesystem::file_size(log, error) <= bytes_max || error) return false;
  const std::filesystem::path copy = std::filesystem::path(log) += ".moving";
  std::filesystem::copy_file(log, copy, std::filesystem::copy_options::overwrite_existing, error);
  if (!error) std::filesystem::rename(copy, FormerLog(log), error);
  if (!error) {
    // Lines that came while it was copied.
    std::ifstream rest(log);
    std::ofstream former(FormerLog(log), std::ios::app);
    rest.seekg(static_cast<std::streamoff>(std::filesystem::file_size(FormerLog(log), error)));
    if (rest.peek() != std::ifstream::traits_type::eof()) former << rest.rdbuf();
    former.flush();
    if (former.good()) std::filesystem::resize_file(log, 0, error);
    return former.good() && !error;
  }
  std::error_code ignored;
  std::filesystem::remove(copy, ignored);
  return false;
}

std::string LastWords(const std::filesystem::path& log, std::uintmax_t begin,
                      const std::string& name) {
  std::string own;
  std::string error;
  std::string any;
  for (const std::string& line : Tail(log, begin)) {
    if (absl::StartsWith(line, name + ": ")) own = line;
    if (IsEvent(line, {{'E', "error"}})) error = line;
    // Its debug, info and warning lines say nothing of its end.
    const bool event = IsEvent(line, {{'D', "debug"}, {'I', "info"}, {'W', "warning"}});
    if (!line.empty() && !event) any = line;
  }
  return !own.empty() ? own : !error.empty() ? error : any;
}

std::string LogTail(const std::filesystem::path& log, int lines, std::uintmax_t begin) {
  const std::vector<std::string> all = Tail(log, begin);
  const size_t first = all.size() > static_cast<size_t>(lines) ? all.size() - lines : 0;
  return absl::StrJoin(all.begin() + static_cast<std::ptrdiff_t>(first), all.end(), "\n");
}

std::filesystem::path BinaryDirectory() {
  const absl::StatusOr<std::filesystem::path> executable = ExecutablePath();
  return executable.ok() ? executable->parent_path() : "";
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const Options& options) {
  OXBOW_CHECK(!options.argv.empty()) << "a child needs a binary";
  const int log = open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) {
    return CannotStart(errno, absl::StrCat("cannot write log: ", std::strerror(errno), ": ",
                                           options.log.string()));
  }
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
    const absl::Status failed =
        CannotStart(errno, absl::StrCat("cannot make a pipe: ", std::strerror(errno)));
    close(log);
    return failed;
  }
  fcntl(pipe_ends[0], F_SETFL, O_NONBLOCK);
  std::vector<std::string> argv = {options.spawner.string(), absl::StrCat(getpid())};
  argv.insert(argv.end(), options.argv.begin(), options.argv.end());
  const absl::StatusOr<pid_t> pid =
      Spawn({.binary = options.spawner,
             .argv = argv,
             .environment = options.environment,
             .without = options.without,
             .output = SpawnOptions::Output{.out = pipe_ends[1], .err = log},
             .own_group = true,
             .signals = ChildSignals::kUnblocked});
  close(pipe_ends[1]);
  close(log);
  if (!pid.ok()) {
    close(pipe_ends[0]);
    return absl::Status(pid.status().code(),
                        absl::StrCat("cannot start (is the build complete?): ",
                                     pid.status().message(), ": ", options.spawner.string()));
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(*pid, pipe_ends[0]));
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

}  // namespace oxbow::cli
