// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/faulty_disk.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"

namespace oxbow::testing {

absl::StatusOr<std::unique_ptr<FaultyDisk>> FaultyDisk::Make(const std::string& library,
                                                             const std::filesystem::path& file,
                                                             const std::filesystem::path& below) {
  if (library.empty()) return absl::UnimplementedError("no disk to preload in this build");
  const Descriptor opened(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (opened.value < 0) return ErrnoStatus("cannot open", file.string(), errno);
  if (::ftruncate(opened.value, sizeof(DiskFault)) != 0) {
    return ErrnoStatus("cannot make", file.string(), errno);
  }
  void* mapped =
      ::mmap(nullptr, sizeof(DiskFault), PROT_READ | PROT_WRITE, MAP_SHARED, opened.value, 0);
  if (mapped == MAP_FAILED) return ErrnoStatus("cannot map", file.string(), errno);
  return std::unique_ptr<FaultyDisk>(
      new FaultyDisk({"LD_PRELOAD=" + library, absl::StrCat(kDiskFaultFile, "=", file.string()),
                      absl::StrCat(kDiskFaultBelow, "=",
                                   (below.has_filename() ? below : below.parent_path()).string())},
                     static_cast<DiskFault*>(mapped)));
}

FaultyDisk::~FaultyDisk() { ::munmap(fault_, sizeof(DiskFault)); }

}  // namespace oxbow::testing
