// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/process_faults.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/chaos/run_under_test.h"

namespace oxbow::chaos {
namespace {

namespace fs = std::filesystem;

constexpr rlim_t kMemoryLeft = 1 << 20;

absl::Status Failed(const char* what, pid_t process) {
  const std::string message = absl::StrCat(what, " ", process, ": ", std::strerror(errno));
  return errno == ESRCH ? absl::NotFoundError(message) : absl::PermissionDeniedError(message);
}

// The numbers of the entries of a directory below /proc; none if the process is gone.
std::set<int> NumbersIn(const fs::path& directory) {
  std::set<int> numbers;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    int number = 0;
    if (absl::SimpleAtoi(at->path().filename().string(), &number)) numbers.insert(number);
  }
  return numbers;
}

pid_t ThreadNamed(pid_t process, const std::string& name) {
  const fs::path tasks = absl::StrCat("/proc/", process, "/task");
  for (const int thread : NumbersIn(tasks)) {
    std::string found;
    std::getline(std::ifstream(tasks / absl::StrCat(thread) / "comm"), found);
    if (found == name) return thread;
  }
  return 0;
}

// A thread that died while it was traced stays until its tracer has seen it, and its process too.
void Release(pid_t thread) {
  if (ptrace(PTRACE_DETACH, thread, nullptr, nullptr) == 0) return;
  while (waitpid(thread, nullptr, __WALL) == thread) {
  }
}

}  // namespace

absl::StatusOr<TakeBack> StopProcess(pid_t process) {
  const auto handle = std::make_shared<ProcessHandle>(process);  // Shared: functions are copied.
  if (!handle->Signal(SIGSTOP)) return absl::NotFoundError("it is gone");
  return [handle] {
    handle->Signal(SIGCONT);  // Another process may have killed it.
    return absl::OkStatus();
  };
}

absl::StatusOr<TakeBack> TakeDescriptors(pid_t process) {
  rlimit before{};
  if (prlimit(process, RLIMIT_NOFILE, nullptr, &before) != 0) return Failed("limits of", process);
  const std::set<int> open = NumbersIn(absl::StrCat("/proc/", process, "/fd"));
  if (open.empty()) return absl::NotFoundError("it is gone");
  rlim_t free = 0;
  while (open.contains(static_cast<int>(free))) ++free;
  const rlimit none{.rlim_cur = free, .rlim_max = before.rlim_max};
  if (prlimit(process, RLIMIT_NOFILE, &none, nullptr) != 0) return Failed("limits of", process);
  return [process, before] {
    prlimit(process, RLIMIT_NOFILE, &before, nullptr);  // It may have ended.
    return absl::OkStatus();
  };
}

// Private memory that can be written counts, as in a control group, where a process cannot be put.
absl::StatusOr<TakeBack> TakeMemory(pid_t process) {
  rlimit before{};
  if (prlimit(process, RLIMIT_DATA, nullptr, &before) != 0) return Failed("limits of", process);
  std::ifstream status(absl::StrCat("/proc/", process, "/status"));
  std::string word;
  while (status >> word && word != "VmData:") {
  }
  rlim_t used_kib = 0;  // A program that is just being loaded has none yet.
  if (!(status >> used_kib)) return absl::NotFoundError("it is gone");
  const rlimit tight{.rlim_cur = (used_kib << 10) + kMemoryLeft, .rlim_max = before.rlim_max};
  if (prlimit(process, RLIMIT_DATA, &tight, nullptr) != 0) return Failed("limits of", process);
  return [process, before] {
    prlimit(process, RLIMIT_DATA, &before, nullptr);  // It may have ended.
    return absl::OkStatus();
  };
}

absl::StatusOr<TakeBack> HangThread(pid_t process, const std::string& name) {
  const pid_t thread = ThreadNamed(process, name);
  if (thread == 0) return absl::NotFoundError(absl::StrCat("no thread ", name));
  if (ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) return Failed("trace", thread);
  if (ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0 ||
      waitpid(thread, nullptr, __WALL) != thread) {
    const absl::Status failed = Failed("interrupt", thread);
    Release(thread);
    return failed;
  }
  return [thread] {
    Release(thread);
    return absl::OkStatus();
  };
}

}  // namespace oxbow::chaos
