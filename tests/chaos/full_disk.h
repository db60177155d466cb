// SPDX-License-Identifier: Apache-2.0
// A directory on its own disk that can become full at any moment: a tmpfs whose size shrinks to its
// content.
#pragma once

#include <filesystem>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace oxbow::chaos {

class FullDisk {
 public:
  // Mounts over `directory`, which must exist. kPermissionDenied if mounting is not allowed.
  static absl::StatusOr<std::unique_ptr<FullDisk>> Mount(std::filesystem::path directory);
  ~FullDisk();
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

  absl::Status Fill();
  absl::Status Empty();

 private:
  explicit FullDisk(std::filesystem::path directory) : directory_(std::move(directory)) {}
  const std::filesystem::path directory_;
};

// Makes later mounts visible only to this process and its children, and ends them with it. Call it
// before other threads exist. False if that is not allowed.
bool EnterMountNamespace();

}  // namespace oxbow::chaos
