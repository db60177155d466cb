// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/full_disk.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace oxbow::chaos {
namespace {

constexpr char kRoomy[] = "size=512m";
constexpr int kTries = 100;  // Others may write while the disk is measured.

absl::Status Failed(const char* what, const std::filesystem::path& directory) {
  return absl::PermissionDeniedError(
      absl::StrCat(what, ": ", std::strerror(errno), ": ", directory.string()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<FullDisk>> FullDisk::Mount(std::filesystem::path directory) {
  if (mount("tmpfs", directory.c_str(), "tmpfs", 0, kRoomy) != 0) {
    return Failed("cannot mount", directory);
  }
  return std::unique_ptr<FullDisk>(new FullDisk(std::move(directory)));
}

FullDisk::~FullDisk() { umount2(directory_.c_str(), MNT_DETACH); }

absl::Status FullDisk::Fill() {
  for (int i = 0; i < kTries; ++i) {
    struct statfs facts {};
    if (statfs(directory_.c_str(), &facts) != 0) return Failed("cannot measure", directory_);
    const uint64_t used = (facts.f_blocks - facts.f_bfree) * static_cast<uint64_t>(facts.f_bsize);
    const std::string size = absl::StrCat("size=", used);
    if (mount("tmpfs", directory_.c_str(), "tmpfs", MS_REMOUNT, size.c_str()) == 0) {
      return absl::OkStatus();
    }
  }
  return Failed("cannot fill", directory_);
}

absl::Status FullDisk::Empty() {
  if (mount("tmpfs", directory_.c_str(), "tmpfs", MS_REMOUNT, kRoomy) == 0) return absl::OkStatus();
  return Failed("cannot empty", directory_);
}

bool EnterMountNamespace() {
  return unshare(CLONE_NEWNS) == 0 &&
         mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

}  // namespace oxbow::chaos
