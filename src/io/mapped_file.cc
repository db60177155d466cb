// SPDX-License-Identifier: Apache-2.0
#include "io/mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"

namespace oxbow::io {
namespace {

// Where a file is mapped, for a handler of signals, which may wait for no lock. A place is taken
// while it has a path.
struct TakenPath {
  std::atomic<const char*> path = nullptr;
  std::atomic<uintptr_t> begin = 0;
  std::atomic<size_t> bytes = 0;
};
constexpr size_t kPlaces = 1024;  // Files mapped beyond them have no line of their own.
std::array<TakenPath, kPlaces> places;
struct sigaction before;

void Say(const char* text) { (void)!::write(STDERR_FILENO, text, std::strlen(text)); }

// Another fault is for the handler before this one, when the instruction is executed again.
void OnBusError(int, siginfo_t* fault, void*) {
  const auto at = reinterpret_cast<uintptr_t>(fault->si_addr);
  for (const TakenPath& place : places) {
    const char* const path = place.path.load();
    const uintptr_t begin = place.begin.load();
    const size_t bytes = place.bytes.load();
    if (path == nullptr || at < begin || at - begin >= bytes) continue;
    struct stat now {};
    const bool read = ::stat(path, &now) == 0;
    const bool is_shorter = read && static_cast<size_t>(now.st_size) < bytes;
    Say(is_shorter ? "a file was cut short while this process used it: "
                   : "a file cannot be read any more: ");
    Say(path);
    Say("\n");
    ::_exit(is_shorter ? kExitData : kExitUnavailable);
  }
  ::sigaction(SIGBUS, &before, nullptr);
}

// Notes whose the bytes are, until the result is gone; null if there is no free place.
std::shared_ptr<const void> TakePlace(const std::string& path, std::string_view bytes) {
  static std::mutex mutex;
  static const bool handled = [] {
    struct sigaction action {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO;
    return ::sigaction(SIGBUS, &action, &before) == 0;
  }();
  if (!handled) return nullptr;
  const std::lock_guard lock(mutex);
  for (TakenPath& place : places) {
    if (place.path.load() != nullptr) continue;
    place.begin = reinterpret_cast<uintptr_t>(bytes.data());
    place.bytes = bytes.size();
    place.path = ::strdup(path.c_str());
    return {&place,
            [](TakenPath* taken) { ::free(const_cast<char*>(taken->path.exchange(nullptr))); }};
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    const std::string message = absl::StrCat("cannot open: ", std::strerror(errno), ": ", path);
    return errno == ENOENT || errno == ENOTDIR ? absl::NotFoundError(message)
                                               : absl::PermissionDeniedError(message);
  }
  MappedFile file;
  struct stat info {};
  const bool regular = ::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
  if (regular && info.st_size > 0) {
    void* address =
        ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address != MAP_FAILED) {
      file.bytes_ = {static_cast<const char*>(address), static_cast<size_t>(info.st_size)};
      file.place_ = TakePlace(path, file.bytes_);
    }
  }
  ::close(descriptor);
  if (!regular) return absl::FailedPreconditionError(absl::StrCat("not a file: ", path));
  if (info.st_size > 0 && file.bytes_.empty()) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot map: ", path));
  }
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), place_(std::move(other.place_)) {}

MappedFile::~MappedFile() {
  place_.reset();
  if (!bytes_.empty()) ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

void MappedFile::Release(std::string_view part) const {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t end = (begin + part.size()) / page * page;
  // Advice: nothing is wrong where it is not taken.
  if (end > first) (void)::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

}  // namespace oxbow::io
