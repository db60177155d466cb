// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/replay_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "services/buffer/segments.h"

namespace oxbow::buffer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNameMax = 100;

absl::Status FromErrno(const std::string& doing, const fs::path& path, int error) {
  const std::string what = absl::StrCat(doing, ": ", std::strerror(error), ": ", path.string());
  return error == ENOSPC || error == EDQUOT ? absl::ResourceExhaustedError(what)
                                            : absl::UnavailableError(what);
}

absl::Status SyncDirectory(const fs::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return FromErrno("cannot open directory", path, errno);
  const int error = fsync(descriptor) == 0 ? 0 : errno;
  close(descriptor);
  return error == 0 ? absl::OkStatus() : FromErrno("cannot sync directory", path, error);
}

// "PREFIX000012" -> 12.
bool NumberAfter(const std::string& name, const std::string& prefix, uint64_t& number) {
  return name.compare(0, prefix.size(), prefix) == 0 &&
         absl::SimpleAtoi(name.substr(prefix.size()), &number);
}

std::vector<fs::path> Children(const fs::path& path) {
  std::vector<fs::path> children;
  std::error_code ignored;
  for (const auto& child : fs::directory_iterator(path, ignored)) children.push_back(child.path());
  std::sort(children.begin(), children.end());
  return children;
}

void RemoveAll(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

bool Immutable(const fs::path& file) {
  return file.extension() == ".sst" || file.extension() == ".blob" ||
         file.extension() == kSegmentExtension;
}

absl::Status SyncFile(const fs::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return FromErrno("cannot open file", path, errno);
  const int error = fsync(descriptor) == 0 ? 0 : errno;
  close(descriptor);
  return error == 0 ? absl::OkStatus() : FromErrno("cannot sync file", path, error);
}

}  // namespace

absl::Status LinkOrCopy(const fs::path& from, const fs::path& to, Link link) {
  std::error_code error;
  link(from, to, error);
  if (!error) return absl::OkStatus();
  // No hard links here: FAT, some network and user-space file systems, another device, too many.
  constexpr std::errc kNoLinks[] = {
      std::errc::operation_not_permitted, std::errc::operation_not_supported,
      std::errc::function_not_supported, std::errc::cross_device_link, std::errc::too_many_links};
  if (std::none_of(std::begin(kNoLinks), std::end(kNoLinks),
                   [&](std::errc none) { return error == none; })) {
    return FromErrno("cannot link", to, error.value());
  }
  fs::copy_file(from, to, error);
  if (error) return FromErrno("cannot copy", to, error.value());
  return SyncFile(to);
}

absl::StatusOr<std::unique_ptr<ReplayDirectory>> ReplayDirectory::Open(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path / "checkpoints", error);
  if (error) return FromErrno("cannot make the data directory", path, error.value());
  Descriptor lock(open((path / "LOCK").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (lock.value < 0) return FromErrno("cannot open the lock file", path / "LOCK", errno);
  return Locked(path, std::move(lock), LOCK_EX,
                "data directory is in use by another replay_buffer; stop it or choose another "
                "--data: ");
}

absl::StatusOr<std::unique_ptr<ReplayDirectory>> ReplayDirectory::OpenForReading(
    const fs::path& path) {
  Descriptor lock(open((path / "LOCK").c_str(), O_RDONLY | O_CLOEXEC));
  if (lock.value < 0 && errno == ENOENT) {
    return absl::NotFoundError(absl::StrCat("not a replay store (no LOCK in it): ", path.string()));
  }
  if (lock.value < 0) return FromErrno("cannot open the lock file", path / "LOCK", errno);
  return Locked(path, std::move(lock), LOCK_SH,
                "a replay_buffer serves this directory; ask it instead (--buffer): ");
}

// As the lock of a run does (run/run_lock.h): where a file system has none, its user must know.
absl::StatusOr<std::unique_ptr<ReplayDirectory>> ReplayDirectory::Locked(const fs::path& path,
                                                                         Descriptor lock,
                                                                         int operation,
                                                                         const char* held) {
  switch (TryLock(lock.value, operation)) {
    case LockOutcome::kLocked:
      break;
    case LockOutcome::kHeld:
      return absl::UnavailableError(absl::StrCat(held, path.string()));
    case LockOutcome::kError:
      return FromErrno("cannot lock", path / "LOCK", errno);
    case LockOutcome::kNoLocks:
      OXBOW_LOG(Warning) << "no locks on this file system: see that no second replay_buffer is "
                            "started on this directory, or put it on a local disk"
                         << Field("path", path.string());
  }
  return std::unique_ptr<ReplayDirectory>(new ReplayDirectory(path, std::move(lock)));
}

ReplayDirectory::ReplayDirectory(fs::path path, Descriptor lock)
    : path_(std::move(path)), lock_(std::move(lock)) {}
ReplayDirectory::~ReplayDirectory() = default;

absl::StatusOr<ReplayDirectory::Live> ReplayDirectory::FindLive() const {
  const auto current = ReadFile(path_ / "CURRENT", 4096);
  if (current.ok()) {
    const std::string name(absl::StripAsciiWhitespace(*current));
    uint64_t number = 0;
    if (!NumberAfter(name, "live-", number) || !fs::is_directory(path_ / name)) {
      return absl::DataLossError(
          absl::StrCat("replay store is damaged, CURRENT names no database: ", path_.string()));
    }
    return Live{path_ / name, true};
  }
  if (!absl::IsNotFound(current.status())) return current.status();
  std::vector<fs::path> found;
  uint64_t number = 0;
  for (const fs::path& child : Children(path_)) {
    if (NumberAfter(child.filename(), "live-", number)) found.push_back(child);
  }
  if (found.size() > 1) {
    return absl::DataLossError(
        absl::StrCat("replay store is damaged, CURRENT is missing: ", path_.string()));
  }
  return Live{found.empty() ? NextLive() : found.front(), false};
}

fs::path ReplayDirectory::NextLive() const {
  uint64_t last = 0;
  for (const fs::path& child : Children(path_)) {
    uint64_t number = 0;
    if (NumberAfter(child.filename(), "live-", number)) last = std::max(last, number);
  }
  return path_ / absl::StrFormat("live-%06d", last + 1);
}

absl::Status ReplayDirectory::Settle(const fs::path& live) {
  OXBOW_RETURN_IF_ERROR(SyncDirectory(path_));
  return WriteFileAtomically(path_ / "CURRENT", live.filename().string() + "\n");
}

void ReplayDirectory::Sweep(const fs::path& live) const {
  uint64_t number = 0;
  for (const fs::path& child : Children(path_)) {
    const bool old = NumberAfter(child.filename(), "live-", number) && child != live;
    if (old || (fs::is_directory(child) && child.extension() == ".tmp")) RemoveAll(child);
  }
  for (const fs::path& child : Children(path_ / "checkpoints")) {
    if (child.extension() == ".tmp") RemoveAll(child);
  }
  SweepTemporaries(path_);
  std::set<std::string> younger;
  const std::vector<Numbered> all = List();
  for (auto at = all.rbegin(); at != all.rend(); ++at) {
    if (!younger.insert(at->name).second) RemoveAll(at->path);
  }
}

std::vector<ReplayDirectory::Numbered> ReplayDirectory::List() const {
  std::vector<Numbered> all;
  for (const fs::path& child : Children(path_ / "checkpoints")) {
    const std::string extension = child.extension();
    uint64_t number = 0;
    if (NumberAfter(extension, ".", number)) all.push_back({number, child.stem(), child});
  }
  std::sort(all.begin(), all.end(),
            [](const Numbered& a, const Numbered& b) { return a.number < b.number; });
  return all;
}

absl::StatusOr<fs::path> ReplayDirectory::NextCheckpoint(const std::string& name) const {
  const bool valid = !name.empty() && name.size() <= kNameMax &&
                     std::all_of(name.begin(), name.end(), [](unsigned char c) {
                       return absl::ascii_isalnum(c) || c == '-' || c == '_';
                     });
  if (!valid) {
    return absl::InvalidArgumentError(absl::StrCat(
        "checkpoint name must be 1 to 100 letters, digits, '-' or '_': ", name.substr(0, 120)));
  }
  const std::vector<Numbered> all = List();
  const uint64_t last = all.empty() ? 0 : all.back().number;
  return path_ / "checkpoints" / absl::StrFormat("%s.%06d", name, last + 1);
}

absl::Status ReplayDirectory::Publish(const fs::path& path, uint64_t keep) const {
  OXBOW_RETURN_IF_ERROR(SyncDirectory(path.parent_path()));
  std::set<std::string> kept;
  const std::vector<Numbered> all = List();
  for (auto at = all.rbegin(); at != all.rend(); ++at) {
    const bool older_of_a_kept_name = kept.count(at->name) > 0;
    if (older_of_a_kept_name || (keep > 0 && kept.size() >= keep)) {
      RemoveAll(at->path);
    } else {
      kept.insert(at->name);
    }
  }
  for (const Numbered& aside : Asides()) RemoveAll(aside.path);
  return absl::OkStatus();
}

std::vector<ReplayDirectory::Numbered> ReplayDirectory::Asides() const {
  std::vector<Numbered> all;
  for (const fs::path& child : Children(path_)) {
    uint64_t number = 0;
    if (NumberAfter(child.filename(), "aside-", number)) all.push_back({number, "", child});
  }
  return all;
}

std::optional<fs::path> ReplayDirectory::NextAside() const {
  const std::vector<Numbered> all = Asides();
  if (all.size() >= kAsidesMax) return std::nullopt;
  const uint64_t last = all.empty() ? 0 : all.back().number;
  return path_ / absl::StrFormat("aside-%06d", last + 1);
}

absl::Status ReplayDirectory::SetCheckpointsAside() const {
  const std::vector<Numbered> asides = Asides();
  uint64_t last = asides.empty() ? 0 : asides.back().number;
  for (const Numbered& checkpoint : List()) {
    const fs::path aside = path_ / absl::StrFormat("aside-%06d", ++last);
    std::error_code error;
    fs::rename(checkpoint.path, aside, error);
    if (error) return FromErrno("cannot rename", checkpoint.path, error.value());
  }
  return SyncDirectory(path_);
}

absl::StatusOr<fs::path> ReplayDirectory::FindCheckpoint(const std::string& name) const {
  const std::vector<Numbered> all = List();
  for (auto at = all.rbegin(); at != all.rend(); ++at) {
    if (at->name == name) return at->path;
  }
  return absl::NotFoundError(absl::StrCat("replay checkpoint does not exist: ", name));
}

absl::Status ReplayDirectory::Clone(const fs::path& from, const fs::path& to) const {
  const auto copy = [&]() -> absl::Status {
    std::error_code error;
    fs::create_directory(to, error);
    if (error) return FromErrno("cannot make directory", to, error.value());
    for (const fs::path& file : Children(from)) {
      const fs::path copied = to / file.filename();
      if (Immutable(file)) {
        OXBOW_RETURN_IF_ERROR(LinkOrCopy(file, copied));
      } else {  // Log and manifest may grow in place: a link would change the checkpoint.
        OXBOW_ASSIGN_OR_RETURN(const std::string content, ReadFile(file));
        OXBOW_RETURN_IF_ERROR(WriteFileAtomically(copied, content));
      }
    }
    return SyncDirectory(to);
  };
  const absl::Status status = copy();
  if (!status.ok()) RemoveAll(to);
  return status;
}

}  // namespace oxbow::buffer
