// SPDX-License-Identifier: Apache-2.0
#include "run/run_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/json.h"
#include "base/log.h"
#include "base/process.h"

namespace oxbow::run {
namespace {

namespace fs = std::filesystem;

constexpr size_t kRecordBytes = 512;
constexpr absl::Duration kRetry = absl::Milliseconds(50);
constexpr const char* kNames[] = {"LOCK", "learner.lock"};

struct Holder {
  std::string program;
  pid_t pid = 0;
  std::string host;
  std::string since;
  uint64_t process_start = 0;  // Clock ticks after boot: pids are used again, this is not.
  uint64_t start = 0;
};

// When a process started, in clock ticks after boot; nothing if it has ended. A zombie has.
std::optional<uint64_t> StartOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));  // "12 (name) S ..."
  std::string stat;
  std::getline(file, stat);
  const size_t name_end = stat.rfind(") ");
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(stat.substr(name_end + 2));
  std::string state;
  fields >> state;
  if (state == "Z" || state == "X") return std::nullopt;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  uint64_t ticks = 0;
  if (!(fields >> ticks)) return std::nullopt;
  return ticks;
}

std::string ReadRecord(int file) {
  std::string record(kRecordBytes, '\0');
  const ssize_t count = pread(file, record.data(), record.size(), 0);
  record.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return record;
}

// Fields of a damaged record keep their defaults.
Holder HolderIn(const std::string& record) {
  const auto json = ParseJson(record);
  Holder holder;
  if (!json.is_object()) return holder;
  const auto number = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
  };
  holder.program = TextIn(json, "program");
  holder.pid = static_cast<pid_t>(number("pid"));
  holder.host = TextIn(json, "host");
  holder.since = TextIn(json, "since");
  holder.process_start = number("process_start");
  holder.start = number("start");
  return holder;
}

std::string NameOf(const Holder& holder) {
  if (holder.pid == 0) return "a process that its lock file does not name";
  return absl::StrCat(holder.program, ", process ", holder.pid, " on ", holder.host, " since ",
                      holder.since);
}

absl::Status Live(const fs::path& path, const std::string& record) {
  const Holder holder = HolderIn(record);
  const std::string stop =
      holder.pid == 0 ? "stop it first"
                      : absl::StrCat("stop it first (kill ", holder.pid, " on ", holder.host, ")");
  return absl::UnavailableError(
      absl::StrCat("the run is live: ", NameOf(holder), "; ", stop,
                   ", or choose another name: ", path.parent_path().string()));
}

absl::Status CannotLock(const fs::path& path) {
  const std::string what =
      absl::StrCat("cannot lock the run's directory: ", std::strerror(errno), ": ", path.string());
  return errno == ENOSPC || errno == EDQUOT ? absl::ResourceExhaustedError(what)
                                            : absl::UnavailableError(what);
}

// Whether `path` still names the open file: the directory may have been renamed meanwhile.
bool Names(const fs::path& path, int file) {
  struct stat named {};
  struct stat opened {};
  return stat(path.c_str(), &named) == 0 && fstat(file, &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

std::string NewRecord(const std::string& program, uint64_t start) {
  const nlohmann::json json = {
      {"program", program.substr(0, 64)},
      {"pid", getpid()},
      {"host", HostName().substr(0, 128)},
      {"since", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone())},
      {"process_start", StartOf(getpid()).value_or(0)},
      {"start", start},
      {"token", absl::StrFormat("%016x%016x", RandomBits(), RandomBits())}};
  std::string record = JsonText(json);
  record.resize(kRecordBytes - 1, ' ');
  return record + "\n";
}

// The holder that the record names is alive here. Of other machines nothing is known.
bool LivesHere(const std::string& record) {
  const Holder holder = HolderIn(record);
  if (holder.pid == 0 || holder.host != HostName()) return false;
  return StartOf(holder.pid) == std::optional(holder.process_start);
}

}  // namespace

RunLock::RunLock(fs::path path, Descriptor file, bool locked, uint64_t start, std::string record)
    : path_(std::move(path)),
      file_(std::move(file)),
      locked_(locked),
      start_(start),
      record_(std::move(record)) {}

RunLock::~RunLock() {
  if (file_.value < 0 || locked_ || !CheckHeld().ok()) return;
  auto json = ParseJson(record_);
  json["pid"] = 0;  // Else this process, while it lives, would keep others out.
  std::string record = JsonText(json);
  record.resize(kRecordBytes - 1, ' ');
  record += "\n";
  if (pwrite(file_.value, record.data(), record.size(), 0) < 0) return;
}

absl::StatusOr<RunLock> RunLock::Take(const fs::path& run_dir, const Options& options) {
  const fs::path path = run_dir / kNames[static_cast<int>(options.part)];
  const absl::Duration deadline = Clock::Steady().Now() + options.wait;
  Descriptor file;
  bool locked = false;
  while (true) {
    file = Descriptor(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (file.value < 0) return CannotLock(path);
    const LockOutcome outcome = TryLock(file.value, LOCK_EX, options.lock);
    if (outcome == LockOutcome::kError) return CannotLock(path);
    locked = outcome == LockOutcome::kLocked;
    const std::string record = ReadRecord(file.value);
    const bool held =
        outcome == LockOutcome::kHeld || (outcome == LockOutcome::kNoLocks && LivesHere(record));
    if (!held && outcome == LockOutcome::kNoLocks) {
      OXBOW_LOG(Warning) << "no locks on this file system: of two starts the newer goes on"
                         << Field("path", path.string());
    }
    if (!held && Names(path, file.value)) break;
    if (!held) continue;
    if (Clock::Steady().Now() >= deadline) return Live(path, record);
    absl::SleepFor(kRetry);
  }
  const uint64_t start = HolderIn(ReadRecord(file.value)).start + 1;
  std::string record = NewRecord(options.program, start);
  if (pwrite(file.value, record.data(), record.size(), 0) != static_cast<ssize_t>(record.size()) ||
      fsync(file.value) != 0) {
    return CannotLock(path);
  }
  return RunLock(path, std::move(file), locked, start, std::move(record));
}

// Opened again, because only then does a network file system show what another machine wrote.
absl::Status RunLock::CheckHeld() const {
  const Descriptor file(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.value < 0 && errno != ENOENT) {
    const std::string why =
        absl::StrCat("cannot read the lock: ", std::strerror(errno), ": ", path_.string());
    const bool full = errno == EMFILE || errno == ENFILE;  // This process's matter, and it passes.
    return full ? absl::ResourceExhaustedError(why) : absl::UnavailableError(why);
  }
  if (file.value < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the run's directory was removed or renamed while it ran, this process ends: ",
                     path_.parent_path().string()));
  }
  char first = 0;
  if (pread(file.value, &first, 1, 0) < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot read the lock: ", std::strerror(errno), ": ", path_.string()));
  }
  const std::string record = ReadRecord(file.value);
  if (record == record_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the run's directory was taken over by ", NameOf(HolderIn(record)),
                   "; this process ends: ", path_.parent_path().string()));
}

bool IsLive(const fs::path& run_dir) {
  for (const char* const name : kNames) {
    const Descriptor file(::open((run_dir / name).c_str(), O_RDONLY | O_CLOEXEC));
    if (file.value < 0) continue;
    // Shared, and released at once: a start would have to fall into that moment to be refused.
    if (TryLock(file.value, LOCK_SH) == LockOutcome::kHeld) return true;
  }
  return false;
}

bool IsLockFile(const fs::path& name) { return name == kNames[0] || name == kNames[1]; }

}  // namespace oxbow::run
