// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/process.h"

namespace oxbow::testing {
namespace {

constexpr size_t kTailBytes = 4000;

std::string Tail(const std::string& text) {
  return text.size() <= kTailBytes ? text : "..." + text.substr(text.size() - kTailBytes);
}

struct Pipe {
  int read = -1;
  int write = -1;
};

Pipe MakePipe() {
  std::array<int, 2> ends;
  OXBOW_CHECK(pipe2(ends.data(), O_CLOEXEC) == 0) << std::strerror(errno);
  return {ends[0], ends[1]};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Process>> Process::Start(Options options) {
  OXBOW_CHECK(!options.argv.empty()) << "no command";
  const Pipe out = MakePipe();
  const Pipe err = MakePipe();
  // A test binary may have blocked signals or ignored SIGPIPE; the child starts with a clean slate.
  const absl::StatusOr<pid_t> pid =
      Spawn({.binary = options.argv[0],
             .argv = options.argv,
             .environment = options.environment,
             .output = SpawnOptions::Output{.out = out.write, .err = err.write},
             .signals = ChildSignals::kDefault});
  close(out.write);
  close(err.write);
  if (!pid.ok()) {
    close(out.read);
    close(err.read);
    return absl::NotFoundError(absl::StrCat("cannot start (is it built?): ", pid.status().message(),
                                            ": ", options.argv[0]));
  }
  const std::string name = std::filesystem::path(options.argv[0]).filename();
  return std::unique_ptr<Process>(new Process(*pid, name, out.read, err.read));
}

Process::Process(pid_t pid, std::string name, int stdout_pipe, int stderr_pipe)
    : pid_(pid), name_(std::move(name)) {
  threads_.emplace_back([this, stdout_pipe] { Drain(stdout_pipe, stdout_); });
  threads_.emplace_back([this, stderr_pipe] { Drain(stderr_pipe, stderr_); });
  threads_.emplace_back([this] { Reap(); });
}

Process::~Process() {
  Kill(SIGKILL);
  for (std::thread& thread : threads_) thread.join();
  if (::testing::Test::HasFailure()) {
    std::fprintf(stderr, "---- stderr of %s (%d)\n%s\n----\n", name_.c_str(), pid_,
                 Tail(error_output()).c_str());
  }
}

void Process::Drain(int pipe, Capture& capture) {
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t count = read(pipe, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    absl::MutexLock lock(&mutex_);
    if (count <= 0) {
      capture.ended = true;
      break;
    }
    capture.text.append(buffer.data(), static_cast<size_t>(count));
  }
  close(pipe);
}

void Process::Reap() {
  siginfo_t info;
  // The child stays waitable until the lock is held, so that Kill can never hit a reused process
  // id.
  while (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  absl::MutexLock lock(&mutex_);
  int status = 0;
  OXBOW_CHECK(waitpid(pid_, &status, 0) == pid_) << std::strerror(errno);
  exit_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

absl::StatusOr<std::string> Process::WaitFor(const Capture& capture, const std::string& prefix,
                                             absl::Duration timeout) {
  std::string line;
  size_t scanned = 0;  // Start of the first unread line.
  const auto found_or_ended = [&] {
    for (size_t end; (end = capture.text.find('\n', scanned)) != std::string::npos;
         scanned = end + 1) {
      if (capture.text.compare(scanned, prefix.size(), prefix) != 0) continue;
      line = capture.text.substr(scanned, end - scanned);
      return true;
    }
    return capture.ended;
  };
  absl::MutexLock lock(&mutex_);
  const bool in_time = mutex_.AwaitWithTimeout(absl::Condition(&found_or_ended), timeout);
  if (!line.empty()) return line;
  const std::string what =
      absl::StrCat("no line starting with '", prefix, "' from ", name_, ": ", Tail(stderr_.text));
  return in_time ? absl::UnavailableError(what) : absl::DeadlineExceededError(what);
}

absl::StatusOr<std::string> Process::WaitForLine(const std::string& prefix,
                                                 absl::Duration timeout) {
  return WaitFor(stdout_, prefix, timeout);
}

absl::StatusOr<std::string> Process::WaitForErrorLine(const std::string& prefix,
                                                      absl::Duration timeout) {
  return WaitFor(stderr_, prefix, timeout);
}

void Process::Kill(int signal) {
  absl::MutexLock lock(&mutex_);
  if (!exit_.has_value()) kill(pid_, signal);
}

absl::StatusOr<int> Process::WaitExit(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return exit_.has_value() && stdout_.ended && stderr_.ended;
  };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&ended), timeout)) {
    return absl::DeadlineExceededError(
        absl::StrCat("did not end: ", name_, ": ", Tail(stderr_.text)));
  }
  return *exit_;
}

bool Process::running() const {
  absl::MutexLock lock(&mutex_);
  return !exit_.has_value();
}

std::string Process::output() const {
  absl::MutexLock lock(&mutex_);
  return stdout_.text;
}

std::string Process::error_output() const {
  absl::MutexLock lock(&mutex_);
  return stderr_.text;
}

uint64_t Process::StatusField(const std::string& field) const {
  if (!running()) return 0;
  std::ifstream status(absl::StrCat("/proc/", pid_, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.compare(0, field.size(), field) != 0) continue;
    std::istringstream words(line.substr(field.size() + 1));
    uint64_t kibibytes = 0;
    words >> kibibytes;
    return kibibytes * 1024;
  }
  return 0;
}

uint64_t Process::resident_bytes() const { return StatusField("VmRSS"); }

uint64_t Process::own_bytes_max() const {
  return StatusField("VmHWM") - StatusField("RssFile") - StatusField("RssShmem");
}

std::string ValueOf(const std::string& line, const std::string& key) {
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (word.compare(0, key.size() + 1, key + "=") == 0) return word.substr(key.size() + 1);
  }
  return "";
}

}  // namespace oxbow::testing
