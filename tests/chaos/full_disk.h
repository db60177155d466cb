// A directory on a disk of its own that can be full from one moment to the next: a tmpfs whose size
// shrinks to what it holds.
#pragma once

#include <filesystem>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace oxbow::chaos {

class FullDisk {
 public:
  // Mounts over `directory`, which must be there. kPermissionDenied where mounting is not allowed.
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

// Mounts made from here on are seen by this process and its children alone, and end with them. To
// be called before other threads exist. False where that is not allowed.
bool EnterMountNamespace();

}  // namespace oxbow::chaos
