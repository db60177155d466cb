// SPDX-License-Identifier: Apache-2.0
// A directory whose disk fails while processes use it, without any right to mount one: they preload
// disk_faults.cc, which fails their calls on files. What `logs` and `replay` below it hold is left
// alone.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/testing/disk_fault.h"

namespace oxbow::testing {

// The library that processes preload; empty in builds without it.
#ifdef OXBOW_DISK_FAULTS
inline constexpr char kDiskFaults[] = OXBOW_DISK_FAULTS;
#else
inline constexpr char kDiskFaults[] = "";
#endif

class FaultyDisk {
 public:
  // `library` is disk_faults', empty where nothing can be preloaded: kUnimplemented. `file` says
  // what fails, and lies elsewhere than `below`.
  static absl::StatusOr<std::unique_ptr<FaultyDisk>> Make(const std::string& library,
                                                          const std::filesystem::path& file,
                                                          const std::filesystem::path& below);
  ~FaultyDisk();
  FaultyDisk(const FaultyDisk&) = delete;
  FaultyDisk& operator=(const FaultyDisk&) = delete;

  // For the processes that are to use the disk.
  const std::vector<std::string>& environment() const { return environment_; }

  void Fail(int error) { fault_->error = error; }
  void Heal() { fault_->error = 0; }

 private:
  FaultyDisk(std::vector<std::string> environment, DiskFault* fault)
      : environment_(std::move(environment)), fault_(fault) {}
  const std::vector<std::string> environment_;
  DiskFault* const fault_;
};

}  // namespace oxbow::testing
