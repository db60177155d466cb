// SPDX-License-Identifier: Apache-2.0
#include "services/learner/checkpoint/checkpoint_writer.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "run/run_record.h"
#include "services/learner/checkpoint/checkpoint_store.h"

namespace oxbow::learner {
namespace {

namespace fs = std::filesystem;

constexpr char kStart[] = "start";
constexpr uint64_t kStartBytesMax = 4096;
constexpr absl::Duration kChildSlice = absl::Milliseconds(50);  // Between looks at a command.

absl::Status StatusOfExit(int wait_status) {
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) return absl::OkStatus();
  if (WIFEXITED(wait_status)) {
    return absl::UnavailableError(
        absl::StrCat("the command ended with exit status ", WEXITSTATUS(wait_status)));
  }
  return absl::UnavailableError(
      absl::StrCat("the command was killed by signal ", WTERMSIG(wait_status)));
}

std::string NewStart(uint64_t epoch) { return absl::StrFormat("%d %016x", epoch, RandomBits()); }

uint64_t StartIn(const std::string& text) {
  uint64_t epoch = 0;
  return absl::SimpleAtoi(text.substr(0, text.find(' ')), &epoch) ? epoch : 0;
}

struct Copies {
  fs::path directory;  // One run has it.
  uint64_t steps = 0;  // That many the newest has.
};

std::optional<Copies> CopiesIn(const fs::path& directory) {
  const std::optional<RunState> newest = CheckpointStore(directory, 1).NewestState();
  if (!newest.has_value()) return std::nullopt;
  return Copies{.directory = directory, .steps = newest->committed_steps};
}

// The copies of the run of this name that came furthest.
std::optional<Copies> CopiesOfName(const fs::path& target, const std::string& run_name) {
  std::optional<Copies> furthest;
  std::error_code error;
  for (fs::directory_iterator entry(target, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!run::IsUidOf(run_name, entry->path().filename().string())) continue;
    const std::optional<Copies> found = CopiesIn(entry->path());
    if (found.has_value() && (!furthest.has_value() || found->steps > furthest->steps)) {
      furthest = found;
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    OXBOW_LOG(Warning) << "cannot look for copies of an earlier run"
                       << Field("directory", target.string()) << Field("error", error.message());
  }
  return furthest;
}

}  // namespace

CheckpointWriter::CheckpointWriter() {
  thread_ = std::thread([this] { Run(); });
}

CheckpointWriter::~CheckpointWriter() {
  (void)Finish();  // Nobody is left to hear its error.
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  thread_.join();
}

absl::Status CheckpointWriter::Finish() {
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !write_.has_value(); };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&idle));
  return status_;
}

std::optional<absl::Status> CheckpointWriter::Ended() const {
  absl::MutexLock lock(&mutex_);
  if (write_.has_value()) return std::nullopt;
  return status_;
}

void CheckpointWriter::Begin(Write write) {
  (void)Finish();
  absl::MutexLock lock(&mutex_);
  write_ = std::move(write);
}

void CheckpointWriter::Run() {
  const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return write_.has_value() || ending_;
  };
  while (true) {
    Write write;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&due));
      if (!write_.has_value()) return;
      write = std::exchange(*write_, nullptr);
    }
    const absl::Status status = write();
    write = nullptr;  // Frees what it holds before the next one may begin.
    absl::MutexLock lock(&mutex_);
    status_ = status;
    write_.reset();
  }
}

uint64_t StartThatCopies(const config::CopyTarget& target, const std::string& run_uid) {
  if (target.directory.empty()) return 0;
  const auto held = ReadFile(target.directory / run_uid / kStart, kStartBytesMax);
  return held.ok() ? StartIn(*held) : 0;
}

absl::Status CheckNoCopies(const fs::path& run_directory, const std::string& run_name,
                           const config::CopyTarget& target) {
  if (target.directory.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> uid = run::ReadRunUid(run_directory);
  const std::optional<Copies> found =
      uid.ok() ? CopiesIn(target.directory / *uid) : CopiesOfName(target.directory, run_name);
  if (!found.has_value()) return absl::OkStatus();
  const fs::path checkpoints = run_directory / "checkpoints";
  return absl::InvalidArgumentError(absl::StrCat(
      run_directory.string(), " has no checkpoint, and ", found->directory.string(),
      " has copies of a run of this name, up to step ", found->steps,
      ": to go on with it, mkdir -p ", run::Quoted(checkpoints.string()), " && cp -r ",
      run::Quoted(found->directory.string()), "/step_* ", run::Quoted(checkpoints.string()),
      ", then resume; to begin another run, choose another run.name, or oxbow train --overwrite "
      "(learner --beside-copies)"));
}

std::string CommandFor(const std::string& command, const std::filesystem::path& checkpoint) {
  return absl::StrReplaceAll(command, {{"{}", run::Quoted(checkpoint.string())}});
}

CheckpointCopier::CheckpointCopier(Options options, std::function<void(const absl::Status&)> ended)
    : options_(std::move(options)), self_(NewStart(options_.epoch)), ended_(std::move(ended)) {
  thread_ = std::thread([this] { Run(); });
}

CheckpointCopier::~CheckpointCopier() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  thread_.join();
}

void CheckpointCopier::Copy(uint64_t committed_steps) {
  absl::MutexLock lock(&mutex_);
  due_ = committed_steps;
}

bool CheckpointCopier::Finish(absl::Duration timeout) {
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !copying_ && !due_.has_value();
  };
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&idle), timeout);
}

uint64_t CheckpointCopier::failures() const {
  absl::MutexLock lock(&mutex_);
  return failures_;
}

std::string CheckpointCopier::last_error() const {
  absl::MutexLock lock(&mutex_);
  return last_error_;
}

void CheckpointCopier::Run() {
  const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return due_.has_value() || ending_;
  };
  absl::MutexLock lock(&mutex_);
  while (true) {
    mutex_.Await(absl::Condition(&due));
    if (ending_) return;
    const uint64_t steps = *std::exchange(due_, std::nullopt);
    copying_ = true;
    mutex_.Unlock();
    const absl::Status status = CopyOne(steps);
    ended_(status);
    mutex_.Lock();
    copying_ = false;
    if (!status.ok()) ++failures_;
    last_error_ = std::string(status.message());
  }
}

absl::Status CheckpointCopier::CopyOne(uint64_t committed_steps) {
  const std::filesystem::path checkpoint = options_.checkpoints / CheckpointName(committed_steps);
  const absl::Status status = options_.target.command.empty()
                                  ? CopyToDirectory(committed_steps)
                                  : RunCommand(CommandFor(options_.target.command, checkpoint));
  if (!status.ok()) {
    OXBOW_LOG(Warning) << "checkpoint was not copied, the run goes on"
                       << Field("checkpoint", checkpoint.string())
                       << Field("error", std::string(status.message()));
  }
  return status;
}

// Keeps others of this run from copying there.
absl::Status CheckpointCopier::Claim(const fs::path& copies) const {
  const fs::path path = copies / kStart;
  const absl::StatusOr<std::string> held = ReadFile(path, kStartBytesMax);
  if (held.ok() && *held == self_) return absl::OkStatus();
  if (!held.ok() && !absl::IsNotFound(held.status())) return held.status();
  if (const uint64_t epoch = held.ok() ? StartIn(*held) : 0; epoch > 0 && epoch >= options_.epoch) {
    return absl::FailedPreconditionError(
        absl::StrCat("another start of this run copies there, number ", epoch,
                     ", and this is number ", options_.epoch,
                     ": its directory was copied. Give one of them another checkpoint.copy_to, or "
                     "delete ",
                     path.string(), " if that one is gone"));
  }
  OXBOW_RETURN_IF_ERROR(MakeDirectories(copies, 1));
  return WriteFileAtomically(path, self_);
}

// Writes another checkpoint of the same state and bytes, with all that Write promises.
absl::Status CheckpointCopier::CopyToDirectory(uint64_t committed_steps) const {
  OXBOW_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                         CheckpointStore(options_.checkpoints, 1).LoadAt(committed_steps));
  std::map<std::string, FileContent> files;
  for (const std::string& name : checkpoint.files) {
    files[name] = [path = checkpoint.directory / name](const WritePiece& write) {
      return ReadInPieces(path, write);
    };
  }
  const fs::path copies = options_.target.directory / options_.run_uid;
  OXBOW_RETURN_IF_ERROR(Claim(copies));
  return CheckpointStore(copies, options_.keep, options_.best)
      .Write(checkpoint.state, files)
      .status();
}

// Its output goes to this process's log; a process group of its own dies as a whole.
absl::Status CheckpointCopier::RunCommand(const std::string& command) {
  const absl::Cleanup reap = [this] {
    std::erase_if(groups_, [](pid_t group) { return !ReapGroup(group); });
  };
  OXBOW_ASSIGN_OR_RETURN(
      const pid_t pid,
      Spawn({.binary = "/bin/sh",
             .argv = {"sh", "-c", command},
             .environment = {"OXBOW_RUN_UID=" + options_.run_uid},
             .output = SpawnOptions::Output{.out = STDERR_FILENO, .err = STDERR_FILENO},
             .own_group = true,
             .signals = ChildSignals::kDefault}));
  groups_.push_back(pid);
  const absl::Duration end = Clock::Steady().Now() + options_.command_max;
  bool killed = false;
  while (true) {
    int wait_status = 0;
    if (waitpid(pid, &wait_status, killed ? 0 : WNOHANG) == pid) return StatusOfExit(wait_status);
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&ending_), kChildSlice);
    if (killed || (!ending_ && Clock::Steady().Now() < end)) continue;
    kill(-pid, SIGKILL);
    killed = true;
  }
}

}  // namespace oxbow::learner
