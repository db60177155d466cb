// SPDX-License-Identifier: Apache-2.0
// A run with its real processes, observed from outside: by its files, by /proc, by signals.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/testing/process.h"

namespace oxbow::chaos {

// A process; it cannot be confused with a later one that got the same process id.
class ProcessHandle {
 public:
  explicit ProcessHandle(pid_t pid);
  ~ProcessHandle();
  ProcessHandle(const ProcessHandle&) = delete;
  ProcessHandle& operator=(const ProcessHandle&) = delete;

  // False if the process is gone.
  bool Signal(int signal) const;

 private:
  const int descriptor_;
};

// The memory that a process has for itself, in bytes; 0 once it is gone. Pages of files do not
// count: they are the libraries' code, the kernel can take them back at any time, and on a disk in
// memory it counts them as shared memory. The kernel keeps no peak of this number, so look often.
uint64_t AnonymousBytesOf(pid_t pid);

class RunUnderTest {
 public:
  struct Options {
    std::filesystem::path binaries;
    std::vector<std::string> argv;         // Arguments of `oxbow`.
    std::vector<std::string> environment;  // "NAME=value".
    std::filesystem::path directory;
    absl::Duration deadline;  // For the whole run.
  };
  explicit RunUnderTest(Options options);

  // Starts it again in its directory, with --resume. Requires that it has ended.
  void Resume();

  // Waits until the condition holds. False if the run ended first, or if `timeout` or the deadline
  // passed.
  bool Await(const std::function<bool()>& condition,
             absl::Duration timeout = absl::InfiniteDuration());
  // Nothing if the run did not end by its deadline; then all its processes are killed.
  std::optional<int> AwaitEnd();

  bool running() const { return process_->running(); }
  pid_t pid() const { return process_->pid(); }
  std::string output() const { return process_->output(); }
  std::string error_output() const { return process_->error_output(); }

  // The number of lines in the step log so far, including lines that later ones removed, and the
  // highest number of completed steps among them.
  struct Progress {
    uint64_t lines = 0;
    uint64_t steps = 0;
    uint64_t epoch = 0;  // That of the last line.
  };
  Progress progress();

  // Processes of a kind ("learner"), oldest first: children of the run, or of its learner if `rank`
  // is above 0.
  std::vector<pid_t> Processes(const std::string& kind, int rank = 0) const;
  // host:port of a service ("learner", "reward_server-0"); empty while it is unknown.
  std::string Endpoint(const std::string& service) const;

  // Peak resident memory, by kind of process.
  const std::map<std::string, uint64_t>& resident_peaks() const { return resident_peaks_; }

 private:
  void LookAtMemory();
  void Start();

  Options options_;
  const absl::Duration end_;
  absl::Duration next_look_;
  uint64_t bytes_read_ = 0;
  Progress progress_;
  std::map<std::string, uint64_t> resident_peaks_;
  std::unique_ptr<testing::Process> process_;
};

}  // namespace oxbow::chaos
