// SPDX-License-Identifier: Apache-2.0
// A child process under test: the real binary, its output captured, every wait with a deadline.
//
//   auto buffer = Process::Start({.argv = {BinaryPath("replay_buffer"), "--data", dir}});
//   const std::string ready = (*buffer)->WaitForLine("READY", absl::Seconds(10)).value();
//   const std::string endpoint = ValueOf(ready, "grpc");
//   (*buffer)->Kill(SIGKILL);
//   EXPECT_EQ((*buffer)->WaitExit(absl::Seconds(10)).value(), -SIGKILL);
//
// Spawned, never forked: gRPC does not survive a fork. Processes are started with port 0, and their
// ports are read from the READY line.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace oxbow::testing {

class Process {
 public:
  struct Options {
    std::vector<std::string> argv;         // argv[0] is the path of the binary.
    std::vector<std::string> environment;  // "NAME=value", in place of inherited ones.
  };

  // kNotFound if the binary cannot be executed.
  static absl::StatusOr<std::unique_ptr<Process>> Start(Options options);

  // Kills a running process with SIGKILL. Prints the captured stderr if the current test has
  // failed.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Waits for a line of stdout that starts with `prefix` and returns the first one.
  // kDeadlineExceeded after `timeout`, kUnavailable if stdout ended without it; both messages
  // contain the tail of stderr.
  absl::StatusOr<std::string> WaitForLine(const std::string& prefix, absl::Duration timeout);

  // The same on stderr.
  absl::StatusOr<std::string> WaitForErrorLine(const std::string& prefix, absl::Duration timeout);

  // Sends a signal; does nothing after the process has ended.
  void Kill(int signal);

  // Exit code, or minus the signal that ended it; all output has been captured then.
  // kDeadlineExceeded after `timeout`. May be called again.
  absl::StatusOr<int> WaitExit(absl::Duration timeout);

  bool running() const;
  pid_t pid() const { return pid_; }
  std::string output() const;        // Stdout so far.
  std::string error_output() const;  // Stderr so far.

  // Resident memory (VmRSS). 0 once the process has ended.
  uint64_t resident_bytes() const;
  // The most resident memory so far without pages of files, which a machine in need takes back. 0
  // once the process has ended.
  uint64_t own_bytes_max() const;

 private:
  struct Capture {
    std::string text;
    bool ended = false;
  };

  Process(pid_t pid, std::string name, int stdout_pipe, int stderr_pipe);
  void Drain(int pipe, Capture& capture);
  void Reap();
  absl::StatusOr<std::string> WaitFor(const Capture& capture, const std::string& prefix,
                                      absl::Duration timeout);
  uint64_t StatusField(const std::string& field) const;

  const pid_t pid_;
  const std::string name_;
  mutable absl::Mutex mutex_;
  Capture stdout_ ABSL_GUARDED_BY(mutex_);
  Capture stderr_ ABSL_GUARDED_BY(mutex_);
  std::optional<int> exit_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

// The value of `key` in a line of "key=value" words; empty if it is not there.
std::string ValueOf(const std::string& line, const std::string& key);

// The path of a built executable. Requires OXBOW_BINARY_DIR, which every oxbow_test defines.
#ifdef OXBOW_BINARY_DIR
inline std::string BinaryPath(const std::string& name) {
  return absl::StrCat(OXBOW_BINARY_DIR, "/", name);
}
#endif

}  // namespace oxbow::testing
