// SPDX-License-Identifier: Apache-2.0
// A service as a child process: its stdout is read line by line, its stderr goes to a log file, and
// it dies when this process does.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow::cli {

// logs/NAME.log: the stderr of a child of `oxbow train`, all its lives. It is bounded: the child
// goes on appending while it is moved to NAME.log.1.
inline constexpr std::uintmax_t kLogBytesMax = std::uintmax_t{16} << 20;

// The log before the present one.
std::filesystem::path FormerLog(const std::filesystem::path& log);

// Moves the content of a log of more than `bytes_max` to FormerLog, in place of what that had, and
// empties it. The writer must append; a line that it writes in the instant between the two may be
// lost. False if the log is smaller, or could not be copied: then nothing is changed.
bool MoveIfLarge(const std::filesystem::path& log, std::uintmax_t bytes_max = kLogBytesMax);

// The line from `begin` (a byte) on that says why the process ended: what it said last under its
// own name ("learner: ..."), or its last error, or its last line that is no event, such as a
// library's. Empty if there is none: it was killed. Reads no more than the end of the log.
std::string LastWords(const std::filesystem::path& log, std::uintmax_t begin,
                      const std::string& name);

// The last `lines` lines of a log from `begin` (a byte) on, for a person.
std::string LogTail(const std::filesystem::path& log, int lines, std::uintmax_t begin = 0);

// The directory of this executable; the services' binaries lie beside it.
std::filesystem::path BinaryDirectory();

class ChildProcess {
 public:
  struct Options {
    std::filesystem::path spawner;         // oxbow_spawn
    std::vector<std::string> argv;         // argv[0]: path of the binary.
    std::vector<std::string> environment;  // "NAME=value", in place of inherited ones.
    std::vector<std::string> without;      // Names that it does not inherit.
    std::filesystem::path log;             // stderr is appended to it.
  };

  // Starts a child in its own process group with no signal blocked. Call from a thread that lives
  // as long as the process: the child is killed when its starter's thread ends. kUnavailable on
  // failure.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const Options& options);

  // Kills with SIGKILL what still runs and waits for it.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Whole lines that stdout has brought since the last call. Never blocks.
  std::vector<std::string> TakeLines();

  // Exit code, or 128 + the signal that ended it; nothing while it runs. Never blocks.
  std::optional<int> Exit();

  void Signal(int number);  // Does nothing after the exit.
  pid_t pid() const { return pid_; }

 private:
  ChildProcess(pid_t pid, int stdout_pipe) : pid_(pid), stdout_(stdout_pipe) {}

  const pid_t pid_;
  const int stdout_;
  std::string partial_;
  std::optional<int> exit_;
};

// Parses "READY name=N grpc=H:P metrics=H:P"; nothing for any other line.
struct ReadyLine {
  std::string name;
  std::string grpc;
  std::string metrics;
};
std::optional<ReadyLine> ParseReady(const std::string& line);

}  // namespace oxbow::cli
